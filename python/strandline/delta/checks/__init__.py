"""What is believed though no commit says it: by deltalake, and of what Parquet files say of themselves. It imports
``strandline.delta.log`` and what that imports.
"""

"""What deltalake believes though no commit says it. It imports ``strandline.delta.log`` and what that imports."""

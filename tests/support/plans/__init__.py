"""Random plans with random legal progress, run in Spark and held to a model that knows nothing of Spark.

``python -m pytest tests/pyspark_strandline/test_plans.py --plan-seed N``, or ``STRANDLINE_PLAN_SEED=N``, runs one plan alone.
A new operator is a class of its own (:class:`plans.stream.Operator`), named in :data:`plans.plan.OPERATORS`.
"""

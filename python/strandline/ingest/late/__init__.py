"""The late table: rows that were set aside, and how they are readmitted. Imports settings, policies and channels."""

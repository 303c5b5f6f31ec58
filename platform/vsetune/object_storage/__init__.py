"""S3 and what speaks its language: reading, writing whole objects, nothing about data sets or studies."""

"""S3 and compatible servers: reading, writing whole objects. Knows nothing of data sets or studies."""

"""The s3 driver: one object for each KV block, whole PUT and GET requests, each thread with one request in flight."""

"""HTTP/1.1 connections of clients that may be slow, broken or hostile."""

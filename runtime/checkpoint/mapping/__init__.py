"""The language of tables, which maps the weights of one model to those of another."""

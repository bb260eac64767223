"""Where each name of a spec is defined and used."""

"""Where units of work run: processes of this machine, or a cluster that the user names."""

"""Export to CTranslate2 folders."""

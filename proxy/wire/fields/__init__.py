"""Request fields: what each version of the workers accepts, and what becomes of the others."""

"""The tour: three small models of three families, trained here, measured, opened up and proved."""

"""The panel's widgets. Nothing else knows Textual, and no verb of the command line comes by here."""

"""The dialogs of the panel: questions, confirmations, pickers and texts to read."""

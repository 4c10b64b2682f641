"""The app that the pages import from: what a reader of them would have after the tutorial."""

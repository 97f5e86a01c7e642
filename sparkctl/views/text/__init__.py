"""Text tools of the views: styled rows, wrapping, symbols, bars, charts and frames."""

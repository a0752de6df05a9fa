"""Looking inside: the worked example and worksheets; traces, reasons and pages of any model."""

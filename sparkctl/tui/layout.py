"""Where the panel's widgets stand, as Textual has it; what they show is painted by themselves."""

CSS = """
Toast { max-width: 70; padding: 0 1; }
ToastRack { margin-bottom: 2; }
ModalScreen ToastRack { display: none; }
Panel.-ascii Toast.-information { border-left: ascii $success; }
Panel.-ascii Toast.-warning { border-left: ascii $warning; }
Panel.-ascii Toast.-error { border-left: ascii $error; }
Dialog { align: center middle; background: $background 60%; }
Dialog Input { border: none; height: 1; padding: 0; }
CommandLine { align: left bottom; background: transparent; }
CommandLine Sheet { height: 1; background: $surface; }
CommandLine Horizontal { height: 1; }
CommandLine #colon { width: 2; }
CommandLine Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
PanelScreen { layout: vertical; overflow: hidden; }
PanelScreen > #head, PanelScreen > #foot { height: 1; }
PanelScreen > #small { display: none; height: 1fr; }
PanelScreen > .body { height: 1fr; }
PanelScreen.-tiny > * { display: none; }
PanelScreen.-tiny > #small { display: block; }
"""

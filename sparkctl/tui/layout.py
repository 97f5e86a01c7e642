"""Where the panel's widgets stand, as Textual has it; what they show is painted by themselves."""

CSS = """
Toast { max-width: 70; padding: 0 1; }
ToastRack { margin-bottom: 2; }
ModalScreen ToastRack { display: none; }
PanelApp.-ascii Toast.-information { border-left: ascii $success; }
PanelApp.-ascii Toast.-warning { border-left: ascii $warning; }
PanelApp.-ascii Toast.-error { border-left: ascii $error; }
Dialog { align: center middle; background: $background 60%; }
Dialog Input { border: none; height: 1; padding: 0; }
CommandLineDialog { align: left bottom; background: transparent; }
CommandLineDialog TextSurface { height: 1; background: $surface; }
CommandLineDialog Horizontal { height: 1; }
CommandLineDialog #colon { width: 2; }
CommandLineDialog Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
PanelScreen { layout: vertical; overflow: hidden; }
PanelScreen > #head, PanelScreen > #foot { height: 1; }
PanelScreen > #small { display: none; height: 1fr; }
PanelScreen > .body { height: 1fr; }
PanelScreen.-tiny > * { display: none; }
PanelScreen.-tiny > #small { display: block; }
"""

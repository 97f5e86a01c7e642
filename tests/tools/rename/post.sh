cd $1
sed -i "s/panel\.situation()/panel.build_action_context()/" sparkctl/tui/screens/base.py
sed -i 's/\.LORE\b/.FLAG_ADVICE/g; s/\.rules(/.check_engine_flags(/g' sparkctl/engines/lint/flag_check.py sparkctl/engines/lint/flag_check.py tests/unit/engines/test_engine_contract.py 2>/dev/null

cd $1
python3 - <<'P'
import re
p='sparkctl/core/fit/judge.py'; s=open(p).read()
s=s.replace('from sparkctl.core.fit import others, sglang, vllm','from sparkctl.core.fit import others\nfrom sparkctl.core.fit import sglang as sglang_memory\nfrom sparkctl.core.fit import vllm as vllm_memory')
s=re.sub(r'\bsglang\.(?=build|claim)','sglang_memory.',s); s=re.sub(r'\bvllm\.(?=build|claim)','vllm_memory.',s); open(p,'w').write(s)
p='sparkctl/sim/engines.py'; s=open(p).read()
s=s.replace('from sparkctl.sim import ray_script, sglang_script, small_scripts, vllm_script','from sparkctl.sim import ray_script, small_scripts\nfrom sparkctl.sim import sglang_script as sglang_scenes\nfrom sparkctl.sim import vllm_script as vllm_scenes'); s=re.sub(r'\b(sglang|vllm)_script\.',r'\1_scenes.',s); open(p,'w').write(s)
P

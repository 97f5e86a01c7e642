cd $1
python3 - <<'P'
import re
p='sparkctl/profiles/memory_fit/fit_evaluation.py'; s=open(p).read()
s=s.replace('from sparkctl.profiles.memory_fit import others, sglang, vllm','from sparkctl.profiles.memory_fit import others\nfrom sparkctl.profiles.memory_fit import sglang as sglang_memory\nfrom sparkctl.profiles.memory_fit import vllm as vllm_memory')
s=re.sub(r'\bsglang\.(?=build|claim)','sglang_memory.',s); s=re.sub(r'\bvllm\.(?=build|claim)','vllm_memory.',s); open(p,'w').write(s)
p='sparkctl/simulator/engine_scripts.py'; s=open(p).read()
s=s.replace('from sparkctl.simulator import ray_script, sglang_script, small_scripts, vllm_script','from sparkctl.simulator import ray_script, small_scripts\nfrom sparkctl.simulator import sglang_script as sglang_scenes\nfrom sparkctl.simulator import vllm_script as vllm_scenes'); s=re.sub(r'\b(sglang|vllm)_script\.',r'\1_scenes.',s); open(p,'w').write(s)
P

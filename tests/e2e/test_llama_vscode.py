"""llama.vscode's own code asks our server, in node: its extension needs VS Code 1.109, and tests drive 1.100.

The extension is not ours: SPD_LSP_LLAMA_VSCODE names a checkout of github.com/ggml-org/llama.vscode, in which
`npm install --omit=dev --ignore-scripts` was run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.http.http_server import run_server
from tests.node import EXTENSION, needs_node

CHECKOUT = os.environ.get("SPD_LSP_LLAMA_VSCODE", "")
ESBUILD = EXTENSION / "node_modules" / ".bin" / "esbuild"
pytestmark = [
    pytest.mark.e2e,
    needs_node,
    pytest.mark.skipif(not ESBUILD.exists(), reason="needs `npm ci` in editors/vscode"),
    pytest.mark.skipif(not CHECKOUT, reason="SPD_LSP_LLAMA_VSCODE names no checkout of llama.vscode"),
]

BEFORE = ["import argparse\n\n", "parser = argparse."]
# The values that its settings have by default, and no other model chosen.
SCRIPT = """
const [bundle, endpoint, token, before] = JSON.parse(process.argv[1]);
const { LlamaServer } = require(bundle);
const configuration = {
  endpoint, ai_model: "", use_openai_endpoint: false, lora_completion: "",
  n_predict: 128, t_max_prompt_ms: 500, t_max_predict_ms: 2500, max_parallel_completions: 3,
  axiosRequestConfigCompl: { headers: { Authorization: `Bearer ${token}` } },
};
const logged = [];
const app = {
  configuration,
  getComplModel: () => ({}),
  logger: { addEventLog: (...event) => logged.push(event[1]) },
};
const server = new LlamaServer(app);
(async () => {
  const chunks = [{ text: "parser = argparse.ArgumentParser(description=text)\\n", time: 0, filename: "tool.py" }];
  server.updateExtraContext(chunks);
  while (logged.length < 2) await new Promise((resolve) => setTimeout(resolve, 50));
  const found = await server.getFIMCompletion(before[0], "\\n", before[1], chunks, 0);
  console.log(JSON.stringify([logged[1], found]));
})();
"""


def test_it_warms_up_and_gets_its_three_alternatives(tmp_path: Path):
    bundle = tmp_path / "llama-server.js"
    options = ["--bundle", "--platform=node", "--format=cjs", "--external:vscode", f"--outfile={bundle}"]
    subprocess.run([ESBUILD, "src/llama-server.ts", *options], cwd=CHECKOUT, check=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "vscode.js").write_text("module.exports = {};")
    with run_server(tmp_path) as server:
        values = json.dumps([str(bundle), server.url, server.token, BEFORE])
        done = subprocess.run(["node", "-e", SCRIPT, values], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    warmed, found = json.loads(done.stdout)
    assert warmed == "FIM_PREP_POST_RESPONSE"
    texts = [one["content"] for one in found]
    assert texts[0].startswith("ArgumentParser(") and len(set(texts)) == 3

import { factsOf } from '../config/providers.ts';
import type { InitAnswers } from './init.ts';

/** A treadle.toml that works as it is. Comments start with "#  ", examples with "# ". */
export function configTemplate({ provider, model, baseUrl }: InitAnswers): string {
  const isDemo = provider === 'demo';
  return `#  Configuration of Treadle. "treadle doctor" checks it. To use one of the examples, remove the "# " before it.

[models]
default = "main"

[models.main]
provider = ${text(provider)}
${[...(model === undefined ? [] : [`model = ${text(model)}`]), ...(baseUrl === undefined ? [] : [`base_url = ${text(baseUrl)}`])].join('\n')}
${keyLines(provider)}
${isDemo ? '#  The demo model follows a few fixed rules and needs no key. "treadle init --force" chooses a real one.' : SETTINGS}

#  Another model, which is called if the first one fails: add fallback = ["local"] to [models.main].
# [models.local]
# provider = "ollama"
# model = "qwen3"
# base_url = "http://127.0.0.1:11434"

[orchestrator]
# max_tool_iterations = 20          #  model calls per task
# default_tool_timeout_ms = 60000
# agents_md = true                  #  give AGENTS.md to the model

#  The tools that the model gets: sets (read-only, coding, mcp, none) and names.
# [orchestrator.tools]
# offer = ["coding", "mcp"]

#  What agents may do. Without rules, reads in the working folder run, and everything else is asked about.
# [policy]
# autonomy = 1                      #  0: reads only, 1: ask, 2: what paths.write and other lists cover runs, too
# paths.read = ["**"]

#  Where runs are stored.
[store]
url = "sqlite:.treadle/treadle.db"

#  "treadle serve". Other machines need keys: "treadle key new" prints one, and the lines for this file.
# [server]
# host = "127.0.0.1"
# port = 3210
# tools = ["read-only"]

#  Tools of MCP servers: "treadle mcp doctor" checks them.
# [mcp.servers.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
`.replace(/\n{3,}/g, '\n\n');
}

const SETTINGS = `# temperature = 0.7
# max_output_tokens = 8000
# reasoning = "medium"              #  none, minimal, low, medium, high, xhigh or max
# timeout_ms = 300000`;

/** How the model gets its key, which is never in the file. */
function keyLines(provider: InitAnswers['provider']): string {
  const { key } = factsOf(provider);
  if (provider === 'demo' || key === undefined) return '';
  return `#  The key is read from the environment, never from this file: export ${key}=…
# api_key_env = "${key}"${' '.repeat(Math.max(1, 18 - key.length))}#  another variable`;
}

function text(value: string): string {
  return JSON.stringify(value);
}

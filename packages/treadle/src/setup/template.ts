import { factsOf, type Provider } from '../config/providers.ts';

/** What the file is written for. */
export interface InitAnswers {
  readonly provider: Provider;
  readonly model?: string;
  readonly baseUrl?: string;
}

/** A treadle.toml that works as it is. Comments start with "#  ", examples with "# ". */
export function configTemplate(answers: InitAnswers): string {
  return `#  Configuration of Treadle. "treadle doctor" checks it. To use one of the examples, remove the "# " before it.

[models]
default = "main"

[models.main]
${modelLines(answers).join('\n')}

#  Another model, which is called if the first one fails: add fallback = ["local"] to [models.main].
# [models.local]
# provider = "ollama"
# model = "qwen3"
# base_url = "http://127.0.0.1:11434"

[orchestrator]
# max_tool_iterations = 20          #  model calls per task
# default_tool_timeout_ms = 60000
# agents_md = true                  #  give AGENTS.md to the model

#  The tools that the model gets: sets (read-only, coding, packages, mcp, none) and names.
# [orchestrator.tools]
# offer = ["coding", "packages", "mcp"]

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
`;
}

/** The entry of the model. Its key is never in the file. */
function modelLines({ provider, model, baseUrl }: InitAnswers): readonly string[] {
  const { keyVariable: key } = factsOf(provider);
  const chosen = `provider = ${text(provider)}`;
  if (provider === 'demo') {
    return [chosen, '#  It follows a few fixed rules and needs no key. "treadle init --force" chooses a real model.'];
  }
  return [
    chosen,
    ...(model === undefined ? [] : [`model = ${text(model)}`]),
    ...(baseUrl === undefined ? [] : [`base_url = ${text(baseUrl)}`]),
    ...(key === undefined
      ? []
      : [
          `#  The key is read from the environment, never from this file: export ${key}=…`,
          `# api_key_env = ${text(key)}  #  another variable`,
        ]),
    '# max_output_tokens = 8000',
    '# reasoning = "medium"              #  none, minimal, low, medium, high, xhigh or max',
    '# timeout_ms = 300000',
  ];
}

function text(value: string): string {
  return JSON.stringify(value);
}

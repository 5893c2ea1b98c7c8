import type { ServeOptions } from './serve-options.ts';

export interface Serving {
  readonly url: string;
  readonly models: readonly string[];
  readonly default: string;
  readonly options: ServeOptions;
  /** Where responses are kept; absent: only in memory. */
  readonly file: string | undefined;
}

/** For a person who has just started it: what there is, and what to try. */
export function welcome({ url, models, default: standard, options, file }: Serving): string {
  const hasKeys = (options.keys ?? []).length > 0;
  const others = models.filter((name) => name !== standard);
  const tools = (options.tools ?? []).map(({ name }) => name);
  const offered = options.defaultTools ?? [];
  return [
    `Models: ${[`${standard} (default)`, ...others].join(', ')}`,
    ...(tools.length > 0
      ? [
          `Tools:  ${tools.join(', ')}; ${offered.length > 0 ? `every request gets ${offered.join(', ')}` : 'for requests that ask'}`,
        ]
      : []),
    `Kept:   ${file ?? 'nothing; --store memory: forgets all when it stops'}`,
    '',
    `Point any OpenAI client at ${url}/v1${hasKeys ? ', with a key of yours' : '; any key will do'}. Or try:`,
    `  ${curl(url, { standard, hasKeys, hasTools: tools.includes('glob') })}`,
    'Ctrl-C stops it.',
  ].join('\n');
}

function curl(
  url: string,
  { standard, hasKeys, hasTools }: { readonly standard: string; readonly hasKeys: boolean; readonly hasTools: boolean },
): string {
  const body = {
    model: standard,
    input: hasTools ? 'List the files' : 'Hello',
    ...(hasTools && { tools: [{ type: 'mcp', server_label: 'treadle' }] }),
  };
  return [
    `curl ${url}/v1/responses -H 'Content-Type: application/json'`,
    ...(hasKeys ? ['-H "Authorization: Bearer $TREADLE_KEY"'] : []),
    `-d '${JSON.stringify(body).replaceAll("'", `'\\''`)}'`,
  ].join(' ');
}

/** How a call may begin in a text, and where it then ends. */
export interface Start {
  readonly opening: string;
  readonly closing: string;
  /** Only at the beginning of a line. */
  readonly atLineStart?: true;
  /**
   * Looks at what followed the opening so far: a call can still become of it (`maybe`), it will be known only at its end
   * (`hold`), or it is none (`plain`). Asked after each character until it decides, so that little is held in vain.
   */
  readonly judge: (head: string) => 'maybe' | 'hold' | 'plain';
}

const tag = (name: string): Start => ({
  opening: `<${name}>`,
  closing: `</${name}>`,
  judge: (head) => begunWith(head, '{[<'),
});

/** `<function=name>` and `<invoke name="name">`. */
const element = (opening: string, closing: string): Start => ({
  opening,
  closing,
  judge(head) {
    if (!head.endsWith('>')) return head.length > 100 ? 'plain' : 'maybe';
    return /^(?:name=)?["']?[\w.-]+["']?\s*>$/.test(head) ? 'hold' : 'plain';
  },
});

const LANGUAGES = new Set(['', 'json', 'jsonc', 'json5', 'tool_call', 'tool_calls', 'tool_code', 'xml', 'text']);

export const FENCE: Start = {
  opening: '```',
  closing: '```',
  atLineStart: true,
  judge(head) {
    const language = /^[\w-]*/.exec(head)![0];
    if (language.length === head.length) return language.length > 10 ? 'plain' : 'maybe';
    return LANGUAGES.has(language.toLowerCase()) ? begunWith(head.slice(language.length), '{[<') : 'plain';
  },
};

const KEYS = new Set(['name', 'tool', 'tool_name', 'type', 'id', 'function', 'tool_calls', 'arguments', 'parameters']);

/** JSON without anything around it. The first key shows whether it can be a call. */
const bare = (opening: '{' | '['): Start => ({
  opening,
  closing: '',
  atLineStart: true,
  judge(head) {
    const [all, brackets, key, end] = /^([\s[{]*)(?:"(\w*)(")?)?/.exec(head)!;
    if (all.length < head.length || head.length > 60) return 'plain';
    if (brackets === undefined || end === undefined) return 'maybe';
    return KEYS.has(key!) ? 'hold' : 'plain';
  },
});

export const STARTS: readonly Start[] = [
  tag('tool_call'),
  tag('tool_calls'),
  tag('function_call'),
  tag('function_calls'),
  element('<function=', '</function>'),
  element('<invoke ', '</invoke>'),
  FENCE,
  bare('{'),
  bare('['),
];

/** Those that may stand anywhere. They cannot be anything else, so whatever they name is called. */
export const TAGS: readonly Start[] = STARTS.filter(({ atLineStart }) => !atLineStart);

function begunWith(head: string, characters: string): 'maybe' | 'hold' | 'plain' {
  const first = head.trimStart()[0];
  if (first === undefined) return head.length > 100 ? 'plain' : 'maybe';
  return characters.includes(first) ? 'hold' : 'plain';
}

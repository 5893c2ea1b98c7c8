import { expressionIn } from './arithmetic.ts';
import { clausesOf, type Clause } from './clauses.ts';

/** Something to be done, as far as the words alone tell. */
export type Step = Intent & {
  /** The words that ask for it. */
  readonly said: string;
  /** Only after the steps before it. */
  readonly after: boolean;
};

export type Intent =
  | { readonly type: 'list'; readonly folder?: string; readonly pattern?: string }
  | { readonly type: 'read'; readonly file: FileRef }
  | { readonly type: 'search'; readonly text: string; readonly where?: FileRef }
  | { readonly type: 'calculate'; readonly expression: string }
  | { readonly type: 'time' }
  /** Maybe there is a tool for it. `like`: the same as the step before, with this for its object. */
  | { readonly type: 'other'; readonly like: boolean };

/** `last`: the file that was last spoken of. `listed`: of the files that the last step found. */
export type FileRef =
  | { readonly type: 'named'; readonly path: string }
  | { readonly type: 'last' }
  | { readonly type: 'listed'; readonly which: 'first' | 'last' | 'all' };

export function stepsOf(text: string): Step[] {
  const steps: Step[] = [];
  for (const clause of clausesOf(text)) {
    const before = steps.at(-1);
    const intent = intentOf(clause) ?? continued(clause, before) ?? { type: 'other', like: false };
    steps.push({ ...intent, said: clause.shown(clause.words), after: clause.after });
  }
  return steps;
}

/** Whether a step needs what the steps before it find. */
export function leansBack(step: Step): boolean {
  const ref = step.type === 'read' ? step.file : step.type === 'search' ? step.where : undefined;
  return step.after || (ref !== undefined && ref.type !== 'named');
}

function intentOf(clause: Clause): Intent | undefined {
  return searchOf(clause) ?? calculationOf(clause) ?? listOf(clause) ?? timeOf(clause) ?? readOf(clause);
}

/** "read a.txt and b.txt": a clause without a verb goes on with the verb before it. */
function continued({ words, shown }: Clause, before: Step | undefined): Intent | undefined {
  const short = words.split(/\s+/).length <= 3;
  switch (before?.type) {
    case 'read':
      return /^(?:the\s+file\s+)?\S+$/i.test(words) ? { type: 'read', file: fileRef(shown(words)) } : undefined;
    case 'list':
      return /^\S*\/\S*$/.test(words) ? { ...before, folder: shown(words) } : undefined;
    case 'search':
      return short ? { ...before, text: shown(words) } : undefined;
    case 'other':
      return short ? { type: 'other', like: true } : undefined;
    default:
      return undefined;
  }
}

// ── Searching ────────────────────────────────────────────────────────────────────────────────────────────────────────

const SEARCHES: readonly RegExp[] = [
  /^(?:search|look|grep|scan)\s+for\s+(?<text>.+?)(?:\s+(?:in|inside|within|through|across)\s+(?<where>.+))?$/i,
  /^(?:search|grep|scan|look|check)(?:\s+(?:through|in|inside))?\s+(?<where>.+?)\s+for\s+(?<text>.+)$/i,
  /^(?:find|list|show|which|what)\s+(?:(?:me|all|the)\s+)*files?\s+(?:(?:that|which)\s+)?(?:contain|mention|have|has|use|say|include)(?:s|ing)?\s+(?<text>.+)$/i,
  /^find\s+(?:(?:all|the|every|any)\s+)*(?:lines?|occurrences?|mentions?|uses?)\s+(?:of|with|containing)\s+(?<text>.+?)(?:\s+(?:in|inside|within)\s+(?<where>.+))?$/i,
  /^find\s+(?<text>(?!.*\bfiles?\b).+?)\s+(?:in|inside|within)\s+(?<where>.+)$/i,
  /^where\s+(?:is|are|does|do)\s+(?<text>.+?)(?:\s+(?:mentioned|used|defined|found|occur|appear)s?)?(?:\s+in\s+(?<where>.+))?$/i,
  /^grep\s+(?<text>\S+)(?:\s+(?:in\s+)?(?<where>.+))?$/i,
  /^search\s+(?<text>\S+)$/i,
];
const EVERYWHERE =
  /^(?:(?:all|every|the|this|my|our|these|those|whole|entire|working|current)\s+)*(?:files?|folders?|director(?:y|ies)|project|repo(?:sitory)?|code(?:base)?|workspace|everything|here|them|anywhere|everywhere)$/i;

function searchOf({ words, shown }: Clause): Intent | undefined {
  for (const form of SEARCHES) {
    const { text, where } = form.exec(words)?.groups ?? {};
    if (text === undefined) continue;
    const wanted = shown(text.replace(/^(?:the\s+)?(?:word|text|string|phrase|term)\s+/i, ''));
    if (where === undefined || EVERYWHERE.test(where)) return { type: 'search', text: wanted };
    return { type: 'search', text: wanted, where: fileRef(shown(where)) };
  }
  return undefined;
}

// ── Listing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const LIST_VERB = /^(?:list|show|find|get|give|what|which|see|display|print|are there|is there|how many)\b/i;
const FILES = /\b(?:files?|folders?|director(?:y|ies))\b/i;
const HERE =
  /^(?:this|the|here|there|current|working|my|our|it|total|all|files?|folders?|director(?:y|ies)|project|repo(?:sitory)?)$/i;
const ENDINGS: Readonly<Record<string, string>> = {
  markdown: 'md',
  typescript: 'ts',
  javascript: 'js',
  python: 'py',
  rust: 'rs',
  text: 'txt',
  json: 'json',
  yaml: 'yaml',
  toml: 'toml',
};

function listOf({ words, shown }: Clause): Intent | undefined {
  const short = /^(?:ls|dir|list)(?:\s+(\S+))?$/i.exec(words);
  const glob = /(?:^|\s)([^\s\uE000]*\*[^\s\uE000]+)(?=\s|$)/.exec(words)?.[1];
  const inFolder =
    /^what(?:'s| is| are)\s+(?:in\s+)?(?:here|(?:this|the)\s+(?:\w+\s+)?(?:folder|directory))(?:\s+(\S+))?$/i.exec(
      words,
    );
  if (short === null && inFolder === null && !(LIST_VERB.test(words) && (FILES.test(words) || glob !== undefined)))
    return undefined;
  const named = /\bfiles?\s+(?:named|called)\s+(\S+)/i.exec(words)?.[1];
  const kind = /(?:\.|\b)(\w+)\s+files?\b/i.exec(words)?.[1]?.toLowerCase() ?? '';
  const dotted = /\.\w+\s+files?\b/i.test(words);
  const place =
    /\b(?:in|under|inside|of|from)\s+(?:the\s+)?(?:(?:folder|directory)\s+)?(\S+)(?:\s+(?:folder|directory))?$/i.exec(
      words,
    )?.[1];
  const folder = [short?.[1], inFolder?.[1], place].find(
    (word) => word !== undefined && !HERE.test(word) && word !== glob,
  );
  const ending = dotted ? kind : ENDINGS[kind];
  const deep = /\b(?:find|all|everything|recursive)/i.test(words);
  const pattern =
    (glob !== undefined && deep && !glob.includes('/') ? `**/${glob}` : glob) ??
    (named === undefined ? undefined : `**/${shown(named)}`) ??
    (ending === undefined ? undefined : `**/*.${ending}`) ??
    (deep ? '**/*' : undefined);
  return {
    type: 'list',
    ...(folder !== undefined && { folder: shown(folder).replace(/(?<=.)\/+$/, '') }),
    ...(pattern !== undefined && { pattern }),
  };
}

// ── Reading, the time, arithmetic ────────────────────────────────────────────────────────────────────────────────────

const READS: readonly RegExp[] = [
  /^(?:read|open|cat|view|quote|summari[sz]e)\s+(?:me\s+)?(?:(?:the\s+)?(?:contents?|text)\s+of\s+)?(?:the\s+)?(?:file\s+)?(?<file>\S+|(?:first|last)(?:\s+(?:one|file))?(?:\s+of\s+them)?|them\s+all|all(?:\s+(?:of\s+)?(?:them|(?:the\s+)?files))?|each\s+(?:one|file|of\s+them)|every\s+(?:one|file)|that\s+(?:one|file))(?:\s+file)?(?:\s+(?:aloud|out|again|to\s+me))?$/i,
  /^(?:show|print|display|get|load|explain|check|see|type)\s+(?:me\s+)?(?:(?:the\s+)?(?:contents?|text)\s+of\s+)?(?:the\s+)?(?:file\s+)?(?<file>\uE000\d+\uE000|\S*[./]\S+)(?:\s+file)?$/i,
  /^what\s+(?:does|do)\s+(?:the\s+)?(?:file\s+)?(?<file>\S+)\s+(?:say|contain|hold)$/i,
  /^what\s+(?:the\s+)?(?:file\s+)?(?<file>\S+)\s+(?:says|contains|holds)$/i,
  /^what(?:'s|\s+is|\s+are)\s+(?:written\s+)?(?:in|inside)\s+(?:the\s+)?(?:file\s+)?(?<file>\S+)$/i,
];

function readOf({ words, shown }: Clause): Intent | undefined {
  for (const form of READS) {
    const file = form.exec(words)?.groups?.['file'];
    if (file !== undefined) return { type: 'read', file: fileRef(shown(file)) };
  }
  return undefined;
}

function timeOf({ words }: Clause): Intent | undefined {
  const asked =
    /\b(?:what time|time is it|what day|today's date|(?:what(?:'s| is)|tell me)?\s*the\s+(?:current\s+|local\s+)?(?:time|date)|current (?:time|date))\b/i;
  return asked.test(words) && words.length < 60 ? { type: 'time' } : undefined;
}

function calculationOf({ words }: Clause): Intent | undefined {
  const expression = FILES.test(words) ? undefined : expressionIn(words);
  return expression === undefined ? undefined : { type: 'calculate', expression };
}

function fileRef(words: string): FileRef {
  if (/^(?:it|that|this|there|(?:that|this|the)\s+(?:one|file|result))$/i.test(words)) return { type: 'last' };
  if (/^(?:the\s+)?first\b/i.test(words)) return { type: 'listed', which: 'first' };
  if (/^(?:the\s+)?last\b/i.test(words)) return { type: 'listed', which: 'last' };
  if (/^(?:them|both|them\s+all|all\b.*|(?:each|every)\b.*)$/i.test(words)) return { type: 'listed', which: 'all' };
  return { type: 'named', path: words.replace(/^(?:the\s+)?file\s+/i, '') };
}

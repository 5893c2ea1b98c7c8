import { textOf, type ToolSpec } from '@treadle/core';
import { evaluate } from './arithmetic.ts';
import type { Conversation, Done } from './conversation.ts';
import { mentionIn, mentionLike } from './mentions.ts';
import { argumentsIn, type Arguments } from './parameters.ts';
import { toolFor, type Role, type Task } from './roles.ts';
import { leansBack, stepsOf, type FileRef, type Step } from './steps.ts';

export interface PlannedCall {
  readonly name: string;
  readonly arguments: string;
}

/** Something for the answer. */
export type Told =
  | { readonly type: 'result'; readonly title: string; readonly text: string }
  | { readonly type: 'error'; readonly title: string; readonly text: string }
  | { readonly type: 'said'; readonly text: string }
  /** A wish that was understood and cannot be met. */
  | { readonly type: 'unable'; readonly text: string }
  | { readonly type: 'unknown'; readonly text: string };

export interface Plan {
  /** To be made now; none: it is time to answer. */
  readonly calls: readonly PlannedCall[];
  readonly told: readonly Told[];
}

/** What earlier steps leave for later ones to refer to. */
interface Context {
  file: string | undefined;
  listing: readonly string[];
  tool: ToolSpec | undefined;
}

/** One step, as calls to make or as something to say. */
type Resolved =
  | {
      readonly type: 'calls';
      readonly calls: readonly (PlannedCall & { readonly title: string; readonly file?: string })[];
    }
  | Exclude<Told, { type: 'result' | 'error' }>
  /** Not for us: what the loop says in the user's name. */
  | { readonly type: 'nothing' };

/** How many files "read them all" reads. */
const MAX_FILES = 5;

/**
 * What the conversation asks for, step by step, beside what has been done for it: the calls that come next, or all that
 * there is to tell. The same conversation always gives the same plan.
 */
export function plan(conversation: Conversation, tools: readonly ToolSpec[], callable: boolean): Plan {
  const open = [...conversation.done];
  const context = contextOf(conversation.earlier, tools);
  const told: Told[] = [];
  const calls: PlannedCall[] = [];
  for (const step of stepsIn(conversation)) {
    if (calls.length > 0 && leansBack(step)) break;
    const resolved = resolve(step, context, tools);
    if (resolved.type === 'nothing') continue;
    if (resolved.type !== 'calls') {
      told.push(resolved);
      continue;
    }
    for (const { name, arguments: json, title, file } of resolved.calls) {
      if (file !== undefined) context.file = file;
      const at = open.findIndex((done) => done.name === name && done.arguments === json);
      if (at !== -1) {
        const [done] = open.splice(at, 1);
        told.push(toldOf(title, done!));
        remember(context, step.type, done!);
      } else if (callable) {
        calls.push({ name, arguments: json });
      } else {
        told.push({ type: 'unable', text: `Not done, because no tool may be called now: ${step.said}.` });
      }
    }
  }
  for (const done of open) told.push(toldOf(`${done.name} ${done.arguments}`, done));
  return { calls, told };
}

/** Only the first text is the task; what follows may be the loop's own words and counts only where it is clear. */
function stepsIn({ asked }: Conversation): (Step & { readonly clear: boolean })[] {
  return asked.flatMap((text, index) => stepsOf(text).map((step) => ({ ...step, clear: index > 0 })));
}

function resolve(step: Step & { readonly clear: boolean }, context: Context, tools: readonly ToolSpec[]): Resolved {
  switch (step.type) {
    case 'list':
      return use('list', 'list files', tools, {
        task: { ...(step.folder && { path: step.folder }), ...(step.pattern && { pattern: step.pattern }) },
        title: `The files${step.folder ? ` in ${step.folder}` : ''}${step.pattern ? ` that match ${step.pattern}` : ''}`,
      });
    case 'read':
      return forFiles(step.file, context, (path) =>
        use('read', 'read files', tools, { task: { path }, title: `${path} says`, file: path }),
      );
    case 'search':
      return step.where === undefined
        ? use('search', 'search files', tools, { task: { text: step.text }, title: `Where "${step.text}" is found` })
        : forFiles(step.where, context, (path) =>
            use('search', 'search files', tools, {
              task: { text: step.text, path },
              title: `Where "${step.text}" is found in ${path}`,
            }),
          );
    case 'calculate': {
      const { expression } = step;
      const byTool = use('calculate', 'calculate', tools, { task: { expression }, title: `${expression} is` });
      return byTool.type === 'calls' ? byTool : { type: 'said', text: `${expression} = ${evaluate(expression)}` };
    }
    case 'time': {
      const byTool = use('time', 'tell the time', tools, { task: {}, title: 'The time' });
      if (byTool.type === 'calls') return byTool;
      const other = mentioned(step, context, tools);
      return other.type === 'calls' ? other : byTool;
    }
    case 'other':
      return mentioned(step, context, tools);
    default:
      return step satisfies never;
  }
}

function use(
  role: Role,
  what: string,
  tools: readonly ToolSpec[],
  { task, title, file }: { task: Task; title: string; file?: string },
): Resolved {
  const choice = toolFor(role, task, tools);
  if (choice === undefined) return { type: 'unable', text: `I cannot ${what}: there is no tool for it here.` };
  return {
    type: 'calls',
    calls: [{ ...callOf(choice.tool, choice.given), title, ...(file !== undefined && { file }) }],
  };
}

function mentioned(step: Step & { readonly clear: boolean }, context: Context, tools: readonly ToolSpec[]): Resolved {
  const like = step.type === 'other' && step.like && context.tool !== undefined;
  const mention = like ? mentionLike(context.tool!, step.said) : mentionIn(step.said, tools);
  if (mention === undefined || (step.clear && !(mention.byName && mention.missing.length === 0))) {
    return step.clear ? { type: 'nothing' } : { type: 'unknown', text: step.said };
  }
  context.tool = mention.tool;
  if (mention.missing.length > 0) {
    return { type: 'unable', text: `To use ${mention.tool.name} I need to know: ${mention.missing.join(', ')}.` };
  }
  const call = callOf(mention.tool, mention.given);
  return { type: 'calls', calls: [{ ...call, title: `${call.name} ${call.arguments}` }] };
}

function forFiles(ref: FileRef, context: Context, one: (path: string) => Resolved): Resolved {
  const paths = pathsOf(ref, context);
  if (paths.length === 0)
    return { type: 'unable', text: 'I do not know which file is meant: none has been named or found.' };
  const each = paths.map(one);
  const calls = each.flatMap((resolved) => (resolved.type === 'calls' ? resolved.calls : []));
  return calls.length > 0 ? { type: 'calls', calls } : each[0]!;
}

function pathsOf(ref: FileRef, { file, listing }: Context): readonly string[] {
  switch (ref.type) {
    case 'named':
      return [ref.path];
    case 'last':
      return file === undefined ? listing.slice(0, 1) : [file];
    case 'listed':
      return ref.which === 'all'
        ? listing.slice(0, MAX_FILES)
        : ref.which === 'first'
          ? listing.slice(0, 1)
          : listing.slice(-1);
    default:
      return ref satisfies never;
  }
}

function contextOf(earlier: readonly Done[], tools: readonly ToolSpec[]): Context {
  const context: Context = { file: undefined, listing: [], tool: undefined };
  const reads = toolFor('read', { path: '.' }, tools)?.tool.name;
  const lists = toolFor('list', {}, tools)?.tool.name;
  for (const done of earlier) {
    if (done.name === reads) context.file = Object.values(argumentsIn(done.arguments)).find(isText);
    if (done.name === lists) remember(context, 'list', done);
  }
  return context;
}

function remember(context: Context, type: Step['type'], { result }: Done): void {
  if (result.isError || (type !== 'list' && type !== 'search')) return;
  const lines = textOf(result.content).split('\n');
  // A search tells `path:line:text`.
  const paths = type === 'list' ? lines : lines.map((line) => /^([^:\s]+):\d+/.exec(line)?.[1] ?? '');
  const listing = [...new Set(paths.map((line) => line.replace(/^[\s*-]+/, '').trim()))].filter((path) =>
    /^\S*[\w)]$/.test(path),
  );
  if (listing.length === 0) return;
  context.listing = listing;
  if (type === 'list') context.file = undefined;
}

function toldOf(title: string, { name, arguments: json, result }: Done): Told {
  const text = textOf(result.content);
  return result.isError ? { type: 'error', title: `${name} ${json}`, text } : { type: 'result', title, text };
}

function callOf(tool: ToolSpec, given: Arguments): PlannedCall {
  return { name: tool.name, arguments: JSON.stringify(given) };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

import type { ErrorFacts } from '@treadle/core';
import { builtInInput, type BuiltInName } from '../../engine/built-in-tools.ts';
import type {
  ApplyPatchCallItem,
  ApplyPatchCallOutputItem,
  FunctionCallItem,
  FunctionCallOutputItem,
  InputItem,
  ItemStatus,
  LocalShellCallItem,
  LocalShellCallOutputItem,
  ShellCallItem,
  ShellCallOutputItem,
  ShellOutput,
} from './wire.ts';

/** The calls of `shell`, `local_shell` and `apply_patch`, as items and as calls of functions. */

export type BuiltInCallItem = ShellCallItem | LocalShellCallItem | ApplyPatchCallItem;
type BuiltInOutputItem = ShellCallOutputItem | LocalShellCallOutputItem | ApplyPatchCallOutputItem;

const NAMES: Readonly<Record<BuiltInCallItem['type'], BuiltInName>> = {
  shell_call: 'shell',
  local_shell_call: 'local_shell',
  apply_patch_call: 'apply_patch',
};

const CALLS = {
  shell_call_output: 'shell_call',
  local_shell_call_output: 'local_shell_call',
  apply_patch_call_output: 'apply_patch_call',
} as const satisfies Record<BuiltInOutputItem['type'], BuiltInCallItem['type']>;

/** The name of the tool under which the model knows it. */
export function builtInName(type: BuiltInCallItem['type']): BuiltInName {
  return NAMES[type];
}

export function isBuiltInCallType(type: string): type is BuiltInCallItem['type'] {
  return Object.hasOwn(NAMES, type);
}

/** Earlier versions stored only the type and the id of such items. */
export function isBuiltInCall(item: InputItem): item is BuiltInCallItem {
  return isBuiltInCallType(item.type) && 'call_id' in item;
}

export function isBuiltInOutput(item: InputItem): item is BuiltInOutputItem {
  const isOutput =
    item.type === 'shell_call_output' ||
    item.type === 'local_shell_call_output' ||
    item.type === 'apply_patch_call_output';
  return isOutput && 'call_id' in item;
}

interface BuiltInCall {
  readonly type: BuiltInCallItem['type'];
  readonly id: string;
  readonly callId: string;
  readonly status: ItemStatus;
  /** Valid. */
  readonly arguments: string;
}

export function builtInCallItem({ type, id, callId: call_id, status, arguments: json }: BuiltInCall): BuiltInCallItem {
  const common = { id, call_id, status };
  if (type === 'shell_call') {
    const { commands, timeout_ms = null, max_output_length = null } = builtInInput('shell', json);
    const action = { commands, timeout_ms, max_output_length };
    return { type, ...common, action, environment: { type: 'local' } };
  }
  if (type === 'local_shell_call') {
    const {
      command,
      env,
      timeout_ms = null,
      user = null,
      working_directory = null,
    } = builtInInput('local_shell', json);
    return {
      type,
      ...common,
      action: { type: 'exec', command, env: env ?? {}, timeout_ms, user, working_directory },
    };
  }
  const { type: kind, path, diff } = builtInInput('apply_patch', json);
  const operation = kind === 'delete_file' ? { type: kind, path } : { type: kind, path, diff: diff ?? '' };
  return { type, ...common, status: status === 'in_progress' ? status : 'completed', operation };
}

/** As the model writes them. */
export function builtInArguments(item: BuiltInCallItem): string {
  if (item.type === 'apply_patch_call') return JSON.stringify(item.operation);
  if (item.type === 'shell_call') return JSON.stringify(withoutNull(item.action));
  const { type: _, env, ...action } = item.action;
  return JSON.stringify(withoutNull({ ...action, env: Object.keys(env).length === 0 ? null : env }));
}

function withoutNull(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

export function builtInAsFunctionCall(item: BuiltInCallItem): FunctionCallItem {
  const { type, id, call_id, status } = item;
  return { type: 'function_call', id, call_id, name: NAMES[type], arguments: builtInArguments(item), status };
}

/** The output of a call with what is known about its failure. Never received from a client. */
export interface FunctionCallOutputWithFacts extends FunctionCallOutputItem {
  readonly facts?: Pick<ErrorFacts, 'errorType' | 'exitCode'>;
  /** The name of the only tool whose calls have such an output. Absent: any. */
  readonly onlyOf?: string;
}

/** The type of the outputs that the calls of a tool have. */
export function outputTypeOf(name: string): string {
  const [type] = Object.entries(NAMES).find(([, builtIn]) => builtIn === name) ?? ['function_call'];
  return `${type}_output`;
}

export function builtInAsFunctionOutput(item: BuiltInOutputItem): FunctionCallOutputWithFacts {
  const onlyOf = NAMES[CALLS[item.type]];
  const common = { type: 'function_call_output', id: item.id, call_id: item.call_id, onlyOf } as const;
  switch (item.type) {
    case 'local_shell_call_output':
      return { ...common, output: item.output, status: item.status };
    case 'apply_patch_call_output': {
      const isError = item.status === 'failed';
      const said = isError ? 'The patch was not applied.' : 'The patch was applied.';
      return {
        ...common,
        output: item.output || said,
        status: 'completed',
        is_error: isError,
        ...(isError && { facts: { errorType: 'execution_failed' } }),
      };
    }
    case 'shell_call_output':
      return { ...common, status: item.status, ...shellResult(item) };
    default:
      return item satisfies never;
  }
}

/** The first command that failed says why. */
function shellResult({
  output,
  status,
}: ShellCallOutputItem): Pick<FunctionCallOutputWithFacts, 'output' | 'is_error' | 'facts'> {
  const text = output.map(outputText).join('\n\n');
  const failed = output.find(({ outcome }) => outcome.type === 'timeout' || outcome.exit_code !== 0)?.outcome;
  if (!failed) return { output: text, is_error: status === 'incomplete' };
  const facts =
    failed.type === 'timeout'
      ? { errorType: 'timeout' as const }
      : { errorType: 'execution_failed' as const, exitCode: failed.exit_code };
  return { output: text, is_error: true, facts };
}

function outputText({ stdout, stderr, outcome }: ShellOutput): string {
  const end = outcome.type === 'timeout' ? '[timed out]' : `[exit code ${outcome.exit_code}]`;
  return [stdout.trimEnd(), stderr === '' ? '' : `[stderr]\n${stderr.trimEnd()}`, end]
    .filter((part) => part !== '')
    .join('\n');
}

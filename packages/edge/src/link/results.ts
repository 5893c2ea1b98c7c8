import type { ErrorType, ResultBlock, ToolOutput } from '@treadle/core';
import { cleanResult } from '@treadle/tools/described-tools';
import type { Fields } from '../protocol/message.ts';
import type { ReportBlock, ReportErrorType } from '../protocol/report.ts';
import type { ReceivedReport } from './link.ts';

/* What a device has reported, for the model: results as they are, and errors with what to do, in the words of the design document. */

/** What a text about an error needs to know about the call. */
export interface ReportedCall {
  readonly device: string;
  readonly tool: string;
  readonly input: Fields;
  readonly parameters: Fields;
  /** Tools that the device certainly has. */
  readonly available: readonly string[];
  readonly permissions: readonly string[];
  readonly timeoutMs: number;
}

export function outputOf(report: ReceivedReport, call: ReportedCall): ToolOutput {
  if (report.status === 'error') return errorOutput(report, call);
  const { content, result, stderr = '', exit_code: exitCode = 0 } = report;
  const ending = [
    ...(stderr === '' ? [] : [`[stderr]\n${cleanResult(stderr).replace(/\n$/, '')}`]),
    ...(exitCode === 0 ? [] : [`[exit code ${exitCode}]`]),
  ];
  if (!content) return { content: [{ type: 'text', text: [cleanResult(textOf(result)), ...ending].join('\n') }] };
  return { content: [...content.flatMap(blockFrom), ...ending.map((text) => ({ type: 'text', text }) as const)] };
}

function textOf(result: unknown): string {
  if (typeof result === 'string') return result;
  return result === undefined ? '(no output)' : JSON.stringify(result);
}

/** A block that is incomplete is left out. */
function blockFrom(block: ReportBlock): readonly ResultBlock[] {
  if ('text' in block)
    return typeof block.text === 'string' ? [{ type: block.type, text: cleanResult(block.text) }] : [];
  const { mediaType, source, name } = block;
  const isWhole = source?.type === 'data' ? typeof source.data === 'string' : typeof source?.url === 'string';
  if (!isWhole || !/^[\w.+-]{1,64}\/[\w.+-]{1,64}$/.test(mediaType ?? '')) return [];
  return [{ type: block.type, mediaType, ...(name !== undefined && { name }), source }];
}

const ERROR_TYPES: Readonly<Record<ReportErrorType, ErrorType>> = {
  timeout: 'timeout',
  not_found: 'not_found',
  permission_denied: 'permission_denied',
  invalid_params: 'invalid_params',
  execution_failed: 'execution_failed',
  expired: 'timeout',
  busy: 'execution_failed',
  unsupported: 'execution_failed',
  cancelled: 'interrupted',
  other_ledger: 'interrupted',
  interrupted: 'interrupted',
};

function errorOutput(report: ReceivedReport, call: ReportedCall): ToolOutput {
  const { error_type: type = 'execution_failed', stderr, exit_code: exitCode } = report;
  return {
    content: cleanResult(errorText(report, type, call)),
    isError: true,
    errorType: ERROR_TYPES[type],
    ...(stderr !== undefined && { stderr }),
    ...(exitCode !== undefined && { exitCode }),
  };
}

function errorText(report: ReceivedReport, type: ReportErrorType, call: ReportedCall): string {
  const { device, tool, available, parameters, timeoutMs } = call;
  const { error = '', requires = call.permissions } = report;
  const said = error === '' ? '' : `\nThe device said: ${error}`;
  switch (type) {
    case 'not_found':
      // What it did not find is something else, and it says what to do.
      if (available.includes(tool)) return `Error: ${error}`;
      return (
        `Error: Tool '${tool}' not found. Available tools: ${available.join(', ') || 'none'}.\n` +
        `Please choose an available tool or explain to the user.`
      );
    case 'timeout':
      return (
        `Error: Tool '${tool}' timed out after ${secondsText(timeoutMs)}.${commandText(call)}\n` +
        `Try again with a shorter timeout or explain to the user.${said}`
      );
    case 'permission_denied': {
      const what = requires.length === 0 ? '' : ` (requires: ${requires.join(', ')})`;
      const lacks =
        requires.length === 0
          ? 'This agent does not allow it.'
          : `This agent does not have ${requires.join(', ')} access.`;
      // Its policy may refuse a call although it has the capability.
      const why = error.startsWith('Permission denied (requires')
        ? lacks
        : error === ''
          ? lacks
          : `This agent refused it: ${error}`;
      return `Error: Permission denied for tool '${tool}'${what}.\n${why} Explain to the user.`;
    }
    case 'invalid_params':
      return `Error: Invalid parameters for '${tool}': ${problemText(error)}.\n${signatureText(parameters)}`;
    case 'expired':
      return `Error: The call of tool '${tool}' reached the device '${device}' too late, and was not executed.\nTry again or explain to the user.${said}`;
    case 'busy':
      return `Error: The device '${device}' is busy, and did not execute tool '${tool}'.\nTry again later or explain to the user.${said}`;
    case 'unsupported':
      return `Error: The device '${device}' does not support this: ${error}\nExplain to the user.`;
    case 'cancelled':
      return `Error: Tool '${tool}' was cancelled on the device '${device}'.`;
    case 'other_ledger':
      return otherLedgerText(call);
    case 'interrupted':
      return (
        `Error: Tool '${tool}' was interrupted on the device '${device}', and it is not known whether it took effect.\n` +
        `Find out before you call it again, or explain to the user.${said}`
      );
    case 'execution_failed':
      return error === '' ? `Error: Tool '${tool}' failed, and the device '${device}' did not say why.` : error;
    default:
      return type satisfies never;
  }
}

function secondsText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

function commandText({ input }: ReportedCall): string {
  const { command } = input;
  if (typeof command !== 'string') return '';
  return ` Command: '${command.length > 200 ? `${command.slice(0, 200)}…` : command}'.`;
}

/** The device's own words, without what is repeated after them. */
function problemText(error: string): string {
  return error
    .replace(/^.*?arguments are not valid: /s, '')
    .replace(/\s*Required: .*$/s, '')
    .replace(/\s*Optional: .*$/s, '')
    .replace(/\.\s*$/, '');
}

function signatureText(parameters: Fields): string {
  const required = Array.isArray(parameters['required']) ? (parameters['required'] as readonly string[]) : [];
  const optional = Object.keys((parameters['properties'] as object | undefined) ?? {}).filter(
    (name) => !required.includes(name),
  );
  return `Required: [${required.join(', ')}]. Optional: [${optional.join(', ')}].`;
}

/** What the device remembers is not what it remembered when it got the call. */
export function otherLedgerOutput(call: Pick<ReportedCall, 'device' | 'tool'>): ToolOutput {
  return { content: otherLedgerText(call), isError: true, errorType: 'interrupted' };
}

function otherLedgerText({ device, tool }: Pick<ReportedCall, 'device' | 'tool'>): string {
  return (
    `Error: Tool '${tool}' was called on the device '${device}', and it is not known whether it took effect: the device has lost ` +
    `its record of calls, or another device answers in its place.
Find out before you call it again, or explain to the user.`
  );
}

/** The device is away, or went away during the call. */
export function offlineOutput(
  call: Pick<ReportedCall, 'device' | 'tool'>,
  wasSent: boolean,
  reason: string | undefined,
): ToolOutput {
  const why = reason === undefined ? '' : ` (${reason})`;
  const text = wasSent
    ? `Error: The device '${call.device}' went offline${why} while tool '${call.tool}' ran, and it is not known whether it took effect.\n` +
      `Find out when it is back before you call it again, or explain to the user.`
    : `Error: The device '${call.device}' is offline${why}, so tool '${call.tool}' was not executed.\n` +
      `Try again later or explain to the user.`;
  return { content: text, isError: true, errorType: wasSent ? 'interrupted' : 'execution_failed' };
}

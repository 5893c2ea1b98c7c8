import type {
  CallAnswered,
  ErrorType,
  ResultBlock,
  SettledResult,
  Source,
  ToolOutput,
  ToolResult,
} from '@treadle/core';

/** A result as one text, for programs that do not know content blocks. */
export type LegacyResult =
  | {
      readonly status: 'success';
      readonly tool: string;
      readonly result: string;
      readonly stderr: string;
      readonly exit_code: number;
      /** Only if it is given. */
      readonly elapsed_ms?: number;
    }
  | {
      readonly status: 'error';
      readonly tool: string;
      readonly error: string;
      readonly error_type: LegacyErrorType;
    };

export type LegacyErrorType = Exclude<ErrorType, 'denied' | 'interrupted'>;

/** What a result does not say itself. */
export interface LegacyFacts {
  /** The name of the tool. Needed for what a tool or a registry returns. */
  readonly tool?: string;
  readonly elapsedMs?: number;
}

/**
 * Converts what a tool, a registry or a run returned for a call to a plain result. Images and files become a short text.
 * Of the two types of errors that a plain result does not have, `denied` becomes `permission_denied`, and `interrupted`
 * becomes `execution_failed`.
 */
export function toLegacyResult(
  output: CallAnswered | ToolResult | ToolOutput | Extract<SettledResult, { type: 'result' }>,
  { tool, elapsedMs }: LegacyFacts = {},
): LegacyResult {
  const result = 'result' in output ? output.result : output;
  const { content, isError = false, errorType = 'execution_failed', exitCode = 0, stderr = '' } = result;
  const name = tool ?? ('name' in result ? result.name : '');
  const text = typeof content === 'string' ? content : content.map(blockText).join('\n');
  if (isError) return { status: 'error', tool: name, error: text, error_type: LEGACY_TYPES[errorType] };
  const elapsed = elapsedMs !== undefined && { elapsed_ms: elapsedMs };
  return { status: 'success', tool: name, result: text, stderr, exit_code: exitCode, ...elapsed };
}

const LEGACY_TYPES: Readonly<Record<ErrorType, LegacyErrorType>> = {
  timeout: 'timeout',
  not_found: 'not_found',
  permission_denied: 'permission_denied',
  invalid_params: 'invalid_params',
  execution_failed: 'execution_failed',
  denied: 'permission_denied',
  interrupted: 'execution_failed',
};

function blockText(block: ResultBlock): string {
  switch (block.type) {
    case 'text':
    case 'error':
      return block.text;
    case 'image':
      return `[image: ${block.mediaType}, ${sourceText(block.source)}]`;
    case 'file':
      return `[file: ${block.name === undefined ? '' : `${block.name}, `}${block.mediaType}, ${sourceText(block.source)}]`;
    default:
      return block satisfies never;
  }
}

const MAX_URL_CHARS = 200;

function sourceText(source: Source): string {
  if (source.type === 'data') return `${Math.floor((source.data.replace(/=+$/, '').length * 3) / 4)} bytes`;
  return source.url.length <= MAX_URL_CHARS ? source.url : `${source.url.slice(0, MAX_URL_CHARS)}…`;
}

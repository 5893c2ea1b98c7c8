import type { Effort, ModelRequest, ToolSpec } from '@treadle/core';
import {
  bodyWriter,
  histories,
  instructionsWithForm,
  memoized,
  perKind,
  type Histories,
  type WriteBody,
} from '../body.ts';
import { allowedOf } from '../calls.ts';
import { jsonOf, sliceableJson } from '../json.ts';
import { closeTurns } from '../turns.ts';
import { CONTENT_FORM, googleContent, type Contents } from './contents.ts';

export interface GoogleBody {
  readonly model: string;
  readonly thinking: GoogleThinking;
  /** Only what was signed under this name is sent back. */
  readonly signer: string;
}

export type GoogleThinking = 'level' | 'budget' | 'none';

const signedHistories = perKind((signer) => contentsOf(signer, true));
const unsignedHistories = perKind((signer) => contentsOf(signer, false));

function contentsOf(signer: string, needsSignatures: boolean): Histories<Contents> {
  const start = (): Contents => ({ role: undefined, signer, needsSignatures, calls: new Map() });
  return histories({ start, write: googleContent, close: (contents) => `${closeTurns(CONTENT_FORM, contents)}}` });
}

const toolsOf = memoized((tools: readonly ToolSpec[]) => {
  const declared = tools.map((tool) => {
    return { name: tool.name, description: tool.description, parametersJsonSchema: tool.parameters };
  });
  return tools.length === 0 ? '' : `,"tools":${jsonOf([{ functionDeclarations: declared }])}`;
});

export function googleBody(body: GoogleBody): WriteBody {
  // Since Gemini 3 the API requires the signatures of calls, and takes a schema of the answer beside tools.
  const isNew = body.thinking === 'level';
  return bodyWriter((isNew ? signedHistories : unsignedHistories)(body.signer), {
    write(request) {
      const { tools, output, outputForm } = request;
      const schema = isNew || tools.length === 0 ? output : undefined;
      const responseJsonSchema = outputForm?.anyObject
        ? undefined
        : { description: outputForm?.description, ...schema };
      const answerForm = schema && { responseMimeType: 'application/json', responseJsonSchema };
      const text = (schema ? request.instructions : instructionsWithForm(request)) ?? '';
      const fields = {
        generationConfig: { ...generationConfig(body, request), ...answerForm },
        systemInstruction: text.trim() === '' ? undefined : { parts: [{ text }] },
        toolConfig: toolConfig(request),
      };
      return `${sliceableJson(fields).slice(0, -1)}${toolsOf(tools)},"contents":[`;
    },
  });
}

/** Undefined fields are not sent. */
function generationConfig(body: GoogleBody, { settings }: ModelRequest): object {
  const { stop, reasoning, temperature, topP, seed, presencePenalty, frequencyPenalty, maxOutputTokens } = settings;
  const sampling = { temperature, topP, seed, presencePenalty, frequencyPenalty, maxOutputTokens };
  const stopSequences = stop?.length === 0 ? undefined : stop;
  return { ...sampling, stopSequences, thinkingConfig: thinkingConfig(body, reasoning) };
}

/** The levels of Gemini 3, and the budgets of Gemini 2.5 that Google's own OpenAI-compatible API uses. */
const EFFORTS: Readonly<Record<Effort, readonly [level: string, budget: number]>> = {
  none: ['MINIMAL', 0],
  minimal: ['MINIMAL', 1_024],
  low: ['LOW', 1_024],
  medium: ['MEDIUM', 8_192],
  high: ['HIGH', 24_576],
  xhigh: ['HIGH', 24_576],
  max: ['HIGH', 24_576],
};

/** The models named `pro` always think: their lowest level is `LOW`, and their smallest budget is 128. */
function thinkingConfig({ model, thinking }: GoogleBody, reasoning: Effort | undefined): object | undefined {
  if (thinking === 'none') return undefined;
  if (reasoning === undefined) return { includeThoughts: true };
  const [level, budget] = EFFORTS[reasoning];
  const isPro = /\bpro\b/.test(model);
  const includeThoughts = reasoning !== 'none';
  if (thinking === 'budget') return { includeThoughts, thinkingBudget: isPro ? Math.max(budget, 128) : budget };
  return { includeThoughts, thinkingLevel: isPro && level === 'MINIMAL' ? 'LOW' : level };
}

/** Undefined means `AUTO`. `VALIDATED` is `AUTO` with a subset of the tools. The API cannot prevent parallel calls. */
function toolConfig(request: ModelRequest): object | undefined {
  const { tools, toolChoice: choice } = request;
  const isNamed = typeof choice === 'object';
  const allowed = isNamed ? tools.filter(({ name }) => name === choice.tool) : allowedOf(request);
  if (tools.length === 0 || (choice === 'auto' && allowed === tools)) return undefined;
  if (choice === 'none' || allowed.length === 0) return { functionCallingConfig: { mode: 'NONE' } };
  const allowedFunctionNames = allowed === tools ? undefined : allowed.map(({ name }) => name);
  return { functionCallingConfig: { mode: choice === 'auto' ? 'VALIDATED' : 'ANY', allowedFunctionNames } };
}

import type { Journal, Message } from '@treadle/core';
import type { Logger } from 'pino';
import type { Caller } from '../http/env.ts';
import type { ResponseRequest } from '../responses/request.ts';
import { DEFAULT_LIMITS } from '../responses/limits.ts';
import { alternating } from './alternating.ts';
import { checkSize } from './conversation-size.ts';
import type { RunPlan } from './driven.ts';
import { modelNamed, type ServedModels } from './models.ts';
import { toolsetOf, type Offer } from './tools.ts';

/** What a request of any face says of its run. */
export type Asked = Pick<
  ResponseRequest,
  | 'model'
  | 'functions'
  | 'otherTools'
  | 'toolChoice'
  | 'parallel'
  | 'maxToolCalls'
  | 'maxOutputTokens'
  | 'settings'
  | 'format'
  | 'truncation'
>;

export interface Conversation {
  readonly messages: readonly Message[];
  /** What is said above the conversation, in order; empty texts say nothing. */
  readonly instructions: readonly string[];
}

export interface Served {
  readonly models: ServedModels;
  readonly offer: Offer;
  readonly log: Logger;
}

/** Makes a run of a request. Rejects with an `ApiError` for what cannot be served. */
export async function planOf(
  id: string,
  asked: Asked,
  conversation: Conversation,
  { models, offer, log }: Served,
  caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>,
  journal?: Journal,
): Promise<RunPlan> {
  const { settings, format, parallel, maxOutputTokens, maxToolCalls } = asked;
  checkSize(conversation, DEFAULT_LIMITS.inputChars);
  const { messages, instructions } = conversation;
  const said = instructions.filter((text) => text !== '').join('\n\n');
  return {
    id,
    model: modelNamed(models, asked.model),
    ...(said !== '' && { instructions: said }),
    messages: alternating(messages),
    toolset: await toolsetOf(asked, offer, caller),
    settings,
    ...(format && { format }),
    parallel,
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...(maxToolCalls !== undefined && { maxToolCalls }),
    compaction: asked.truncation === 'auto',
    caller,
    log,
    ...(journal && { journal }),
  };
}

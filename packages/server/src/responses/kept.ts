import type { ResponseResource } from '../wire/response.ts';
import type { ResponseRequest } from './request.ts';

/** What `include` names to get `encrypted_content` of reasoning. */
export const ENCRYPTED = 'reasoning.encrypted_content';

/** What is kept of a request. */
export interface Kept {
  readonly request: ResponseRequest;
  /** What system and developer messages have said so far, for those who go on from here. */
  readonly system: readonly string[];
  readonly key: string;
  readonly scopes: readonly string[];
}

/** A response at its very beginning. */
export function newResponse(id: string, request: ResponseRequest, standard: string, now: number): ResponseResource {
  return {
    id,
    object: 'response',
    created_at: Math.floor(now / 1000),
    completed_at: null,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
    ...request.echo,
    model: request.model ?? standard,
  };
}

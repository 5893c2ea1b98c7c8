import type { IncomingHttpHeaders } from 'node:http';
import type { RunFacts } from '@treadle/core';
import { badRequest } from '../api-error.ts';

/*
 * What the headers of a request say about its run. Every API takes them, because the bodies of most are given by others:
 *
 *   traceparent: 00-…            the trace that the run continues, as W3C Trace Context defines it
 *   x-treadle-session: …         the session that it is part of
 *   x-treadle-task: …            the task that it works on
 *   x-treadle-label-NAME: …      its label NAME, in lower case
 */

const SESSION = 'x-treadle-session';
const TASK = 'x-treadle-task';
const LABEL = 'x-treadle-label-';

const MAX_CHARS = 200;
const MAX_LABELS = 16;
const LABEL_NAME = /^[a-z0-9._-]{1,64}$/;

/** Undefined if the headers say nothing. Throws a 400 for a header of ours that is not valid. */
export function runFactsIn(headers: IncomingHttpHeaders): RunFacts | undefined {
  const trace = traceIn(headers['traceparent']);
  const labels = labelsIn(headers);
  const facts: RunFacts = {
    ...(headers[SESSION] !== undefined && { session: textIn(SESSION, headers[SESSION]) }),
    ...(headers[TASK] !== undefined && { task: textIn(TASK, headers[TASK]) }),
    ...(trace !== undefined && { trace }),
    ...(labels && { labels }),
  };
  return Object.keys(facts).length === 0 ? undefined : facts;
}

function labelsIn(headers: IncomingHttpHeaders): RunFacts['labels'] {
  const names = Object.keys(headers).filter((name) => name.startsWith(LABEL));
  if (names.length === 0) return undefined;
  if (names.length > MAX_LABELS) {
    throw badRequest(`A run has at most ${MAX_LABELS} labels, not ${names.length}.`, `${LABEL}*`, 'invalid_request');
  }
  return Object.fromEntries(
    names.map((header) => {
      const name = header.slice(LABEL.length);
      if (LABEL_NAME.test(name)) return [name, textIn(header, headers[header])];
      throw badRequest(
        `${header} has no valid name of a label: use at most 64 letters, digits and ". _ -".`,
        header,
        'invalid_request',
      );
    }),
  );
}

/** Node decodes headers as Latin-1, and clients send UTF-8. */
function textIn(header: string, value: string | readonly string[] | undefined): string {
  const text = decoded(String(value));
  if (text !== undefined && text !== '' && text.length <= MAX_CHARS && !/\p{Cc}/u.test(text)) return text;
  const message = `${header} must be a text in UTF-8 of at most ${MAX_CHARS} characters, without control characters.`;
  throw badRequest(message, header, 'invalid_request');
}

function decoded(value: string): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(value, 'latin1')).trim();
  } catch {
    return undefined;
  }
}

const TRACEPARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/;

/** A `traceparent` that is not valid is ignored, and one of a later version read as one of version 00: so the standard has it. */
export function traceIn(value: string | readonly string[] | undefined): string | undefined {
  const [, version, trace, parent, flags, more] = TRACEPARENT.exec(String(value ?? '')) ?? [];
  if (trace === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined;
  if (/^0+$/.test(trace) || /^0+$/.test(parent!)) return undefined;
  const known = version === '00' ? flags! : Number.parseInt(flags!, 16) & 1 ? '01' : '00';
  return `00-${trace}-${parent}-${known}`;
}

import { ApiError, badRequest } from '../../api-error.ts';
import { sendJson } from '../../http/respond.ts';
import { route, type Parameters, type Route } from '../../http/routes.ts';
import { checkedQuery, wholeNumber, type NumberParameter } from '../../parse/query.ts';
import { logRecord } from './filter.ts';
import type { KeptLog, LogFilter, WireLogs } from './wire.ts';

const LOG_FILTERS: readonly LogFilter[] = ['tool', 'run', 'request', 'problem'];

const AFTER: NumberParameter = {
  description:
    '`last` of an earlier answer, for the lines that follow. Without it, the newest. If the server was started again since, its lines begin with 1.',
  schema: { type: 'integer', minimum: 0, default: 0 },
};
const LIMIT: NumberParameter = {
  description: 'The most lines.',
  schema: { type: 'integer', minimum: 1, maximum: 1_000, default: 100 },
};
const QUERY: Parameters = {
  filter: {
    description: 'Only calls of tools, runs, requests, or warnings and errors.',
    schema: { type: 'string', enum: LOG_FILTERS },
  },
  after: AFTER,
  limit: LIMIT,
};

/** The log of the server, for operators: it has lines of all tenants. */
export function logRoutes(log: KeptLog | undefined): readonly Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/logs',
      scope: 'logs:read',
      summary: 'Get the newest lines of the log',
      query: QUERY,
      handle(c) {
        const query = checkedQuery(c.req.query(), QUERY);
        const filter = filterOf(query['filter']);
        if (!log) {
          const message = 'This server keeps no log. Set log_file in [server] of its treadle.toml.';
          throw new ApiError(404, 'not_found_error', message, { code: 'log_not_kept' });
        }
        const [after, limit] = [wholeNumber(query, 'after', AFTER), wholeNumber(query, 'limit', LIMIT)];
        const lines = log.after(after);
        const kept = lines.flatMap(({ seq, line }) => {
          const record = logRecord(line, filter);
          return record ? [{ seq, record }] : [];
        });
        // Who follows the log gets all lines, in several answers.
        const page = after > 0 ? kept.slice(0, limit) : kept.slice(-limit);
        const isCut = after > 0 && page.length < kept.length;
        return sendJson(c, {
          object: 'logs',
          data: page.map(({ record }) => record),
          last: (isCut ? page : lines).at(-1)?.seq ?? log.after(0).at(-1)?.seq ?? 0,
        } satisfies WireLogs);
      },
    }),
  ];
}

function filterOf(text: string | undefined): LogFilter | undefined {
  const filter = LOG_FILTERS.find((one) => one === text);
  if (filter !== undefined || text === undefined) return filter;
  throw badRequest(`filter must be one of ${LOG_FILTERS.join(', ')}.`, 'filter');
}

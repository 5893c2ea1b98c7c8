import type { Model, ModelError, Tool } from '@treadle/core';
import type { NamedAgent } from '@treadle/core/named-agents';
import { userSkills, type Skill } from '@treadle/core/skills';
import { z } from 'zod';
import { ApiError } from './api-error.ts';
import {
  agentModelName,
  isDemo,
  mayInvoke,
  modelNamed,
  modelNotFound,
  type ActiveRuns,
  type ServedModels,
} from './engine/engine.ts';
import { publicFailure } from './engine/model-failure.ts';
import type { Caller } from './http/admission.ts';
import { readJson } from './http/body.ts';
import { disconnectSignal } from './http/respond.ts';
import { route, type Route } from './http/routes.ts';
import { validateBody } from './parse/validate.ts';
import type { ServerInfo, WireModelTest } from './server-wire.ts';

/** Sends small requests to a model. Never rejects. */
export type TestModel = (model: Model, signal: AbortSignal) => Promise<ModelTest>;

export interface ModelTest {
  /** The model replied. */
  readonly reachable: boolean;
  /** It called a tool. */
  readonly tools?: boolean;
  /** Its reply was streamed. */
  readonly streams?: boolean;
  readonly ms: number;
  readonly error?: ModelError;
}

/** What the server offers now. */
export interface Offer {
  readonly models: ServedModels;
  readonly tools?: readonly Tool[];
  readonly defaultTools?: readonly string[];
  readonly skills?: readonly Skill[];
  readonly testModel?: TestModel;
}

export interface ServerRoutesOptions {
  readonly hasMemory: boolean;
  readonly offer: () => Offer;
  /** The agents of a caller. */
  readonly agents: (caller: Pick<Caller, 'scopes'>) => readonly NamedAgent[];
  /** A test counts as a run. */
  readonly reserve: ActiveRuns['reserve'];
  readonly maxBodyBytes: number;
}

/** Pages offer them while a message is written. */
const MAX_LISTED_SKILLS = 1_000;
const TEST_MS = 60_000;

const testBody = z.strictObject({ model: z.string().min(1).max(200).nullish() });

/** What the server offers: `/models`, and `/server` for pages, which have to know it before they ask for anything. */
export function serverRoutes(options: ServerRoutesOptions): readonly Route[] {
  const { offer, agents, reserve, maxBodyBytes } = options;
  const created = Math.floor(Date.now() / 1000);
  const wireModel = (id: string): object => ({ id, object: 'model', created, owned_by: 'treadle' });
  /** What a caller can choose as a model: models, and agents as `agent/NAME`. */
  const modelNames = (caller: Pick<Caller, 'scopes'>): readonly string[] => [
    ...(mayInvoke(caller.scopes) ? offer().models.models.keys() : []),
    ...agents(caller).map(({ name }) => agentModelName(name)),
  ];
  return [
    route({
      method: 'GET',
      path: '/v1/models',
      scope: 'agents:invoke',
      summary: 'List the models',
      handle: (c) => c.json({ object: 'list', data: modelNames(c.get('caller')).map(wireModel) }),
    }),
    route({
      method: 'GET',
      path: '/v1/models/:id{.+}',
      scope: 'agents:invoke',
      summary: 'Get a model',
      handle(c) {
        const id = c.req.param('id');
        const names = modelNames(c.get('caller'));
        const isModel = mayInvoke(c.get('caller').scopes) && offer().models.models.get(id) !== undefined;
        if (isModel || names.includes(id)) return c.json(wireModel(id));
        throw modelNotFound(id, names);
      },
    }),
    route({
      method: 'GET',
      path: '/v1/server',
      scope: 'any-key',
      summary: 'Describe the caller, the models, the tools and the skills',
      handle(c) {
        const { key, tenant, scopes } = c.get('caller');
        const { models: served, tools = [], defaultTools = [], skills = [], testModel } = offer();
        return c.json({
          object: 'server',
          key: key === '' ? null : { name: key, tenant, scopes },
          models: [...(mayInvoke(scopes) ? served.models : [])].map(([id, model]) => ({
            id,
            is_default: id === served.default,
            is_demo: isDemo(model),
            accepts: { images: model.accepts?.images !== false, files: model.accepts?.files !== false },
          })),
          tools: tools.map(({ name, description }) => ({ name, description, is_default: defaultTools.includes(name) })),
          agents: agents(c.get('caller')).map((agent) => ({
            name: agent.name,
            description: agent.description,
            model: agentModelName(agent.name),
          })),
          skills: userSkills(skills)
            .slice(0, MAX_LISTED_SKILLS)
            .map(({ name, description }) => ({ name, description })),
          has_memory: options.hasMemory,
          can_test_models: testModel !== undefined,
        } satisfies ServerInfo);
      },
    }),
    route({
      method: 'POST',
      path: '/v1/server/test',
      scope: 'chat:write',
      summary: 'Test whether a model works',
      body: testBody,
      async handle(c) {
        const caller = c.get('caller');
        const { models: served, testModel } = offer();
        const { model } = validateBody(testBody, await readJson(c, maxBodyBytes));
        const name = model ?? served.default;
        if (!mayInvoke(caller.scopes)) throw modelNotFound(name, modelNames(caller));
        const tested = modelNamed({ models: served }, name);
        if (!testModel) {
          throw new ApiError(404, 'not_found_error', 'This server cannot test models.', { code: 'test_unavailable' });
        }
        const { release } = reserve(caller.tenant);
        const signal = AbortSignal.any([AbortSignal.timeout(TEST_MS), disconnectSignal(c)]);
        const test = await testModel(tested, signal).finally(release);
        const { reachable, tools: calls = null, streams = null, ms, error } = test;
        // Without keys the caller is the operator, who may see the address of the model.
        const shown = error && caller.key !== '' ? publicFailure(error) : error;
        const problem = shown ? { code: shown.code, message: shown.message } : null;
        const tried = { model: name, reachable, tools: calls, streams, ms, error: problem };
        return c.json({ object: 'model.test', ...tried } satisfies WireModelTest);
      },
    }),
  ];
}

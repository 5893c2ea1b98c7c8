import type { Tool } from '@treadle/core';
import { Hono } from 'hono';
import { modelNamed, type ServedModels } from './engine/engine.ts';
import type { Env } from './http/admission.ts';

export interface ServerRoutesOptions {
  readonly models: ServedModels;
  readonly tools: readonly Tool[];
  readonly defaultTools: readonly string[];
  /** When the server started, in seconds since 1970. */
  readonly created: number;
}

/** What the server offers: `/models`, and `/server` for pages, which have to know it before they ask for anything. */
export function serverRoutes({ models: served, tools, defaultTools, created }: ServerRoutesOptions): Hono<Env> {
  const wireModel = (id: string): object => ({ id, object: 'model', created, owned_by: 'treadle' });
  return new Hono<Env>()
    .get('/models', (c) => c.json({ object: 'list', data: [...served.models.keys()].map(wireModel) }))
    .get('/models/:id{.+}', (c) => {
      const id = c.req.param('id');
      modelNamed(served, id);
      return c.json(wireModel(id));
    })
    .get('/server', (c) => {
      const { key, tenant, scopes } = c.get('caller');
      return c.json({
        object: 'server',
        key: key === '' ? null : { name: key, tenant, scopes },
        models: [...served.models].map(([id, model]) => ({
          id,
          is_default: id === served.default,
          is_demo: model.id === 'demo',
          accepts: { images: model.accepts?.images !== false, files: model.accepts?.files !== false },
        })),
        tools: tools.map(({ name, description }) => ({
          name,
          description,
          is_default: defaultTools.includes(name),
        })),
      });
    });
}

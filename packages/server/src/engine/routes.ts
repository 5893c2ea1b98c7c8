import { Hono } from 'hono';
import type { Env } from '../http/env.ts';
import { modelNamed, type ServedModels } from './models.ts';

/** `/models` and `/models/{name}`. `created`: since when they are served, in seconds. */
export function modelsRoutes(served: ServedModels, created: number): Hono<Env> {
  const told = (id: string): object => ({ id, object: 'model', created, owned_by: 'treadle' });
  return new Hono<Env>()
    .get('/models', (c) => c.json({ object: 'list', data: [...served.models.keys()].map(told) }))
    .get('/models/:id{.+}', (c) => {
      const id = c.req.param('id');
      modelNamed(served, id);
      return c.json(told(id));
    });
}

import { conformance, type Providers } from './conformance.ts';

/** The program as a worker. The body of the request is the JSON of `Providers`. */
const worker = {
  async fetch(request: Request): Promise<Response> {
    try {
      return Response.json(await conformance((await request.json()) as Providers));
    } catch (thrown) {
      return new Response(thrown instanceof Error ? `${thrown.message}\n${thrown.stack}` : String(thrown), {
        status: 500,
      });
    }
  },
};

export { worker as default };

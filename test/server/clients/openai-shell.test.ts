import OpenAI from 'openai';
import type {
  Response,
  ResponseInput,
  ResponseInputItem,
  ResponseOutputItem,
  ResponseStreamEvent,
  Tool,
} from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { call, useServerFixture } from '../support/fixture.ts';

/** `shell`, `local_shell` and `apply_patch`, which the client executes. */

const fixture = useServerFixture();
const client = (): OpenAI => new OpenAI({ baseURL: fixture.baseURL, apiKey: 'any', maxRetries: 0 });

type ItemOf<Type extends ResponseOutputItem['type']> = Extract<ResponseOutputItem, { type: Type }>;

function onlyItem<Type extends ResponseOutputItem['type']>({ output }: Pick<Response, 'output'>, type: Type) {
  expect(output.map((item) => item.type)).toEqual([type]);
  return output[0] as ItemOf<Type>;
}

const EXIT_0 = { type: 'exit', exit_code: 0 } as const;
const SHELL = { type: 'shell', environment: { type: 'local' } } as const;
const LOCAL_SHELL = { type: 'local_shell' } as const;
const APPLY_PATCH = { type: 'apply_patch' } as const;
const ALL: readonly Tool[] = [SHELL, LOCAL_SHELL, APPLY_PATCH];
const LS = call('shell', { commands: ['ls'] });

function shellOutput({ call_id }: { readonly call_id: string }, stdout: string): ResponseInputItem.ShellCallOutput {
  return { type: 'shell_call_output', call_id, output: [{ stdout, stderr: '', outcome: EXIT_0 }] };
}

const refusedWith = (status: number, code: string, message: RegExp | string = /./) =>
  expect.objectContaining({ status, code, message: expect.stringMatching(message) as string });

describe('shell', () => {
  test('is called and answered with previous_response_id', async () => {
    const script = await fixture.script(
      { text: 'I look.', calls: [call('shell', { commands: ['ls', 'false'], timeout_ms: 5_000 })] },
      { text: 'Two files.' },
      { text: 'Bye.' },
    );
    const skills = [{ name: 'pdf', description: 'Reads PDFs', path: '/skills/pdf' }];
    const tool: Tool = { type: 'shell', environment: { type: 'local', skills } };
    const request = { model: script.model, tools: [tool] };
    const first = await client().responses.create({ ...request, input: 'Files?' });
    const shell = first.output[1] as ItemOf<'shell_call'>;
    expect(first.tools).toEqual([tool]);
    expect(first).toMatchObject({ status: 'completed', pending_call_ids: [shell.call_id] });
    expect(shell).toEqual({
      type: 'shell_call',
      id: expect.stringMatching(/^sh_/),
      call_id: expect.stringMatching(/^call_/),
      action: { commands: ['ls', 'false'], timeout_ms: 5_000, max_output_length: null },
      environment: { type: 'local' },
      status: 'completed',
    });
    const answer: ResponseInputItem.ShellCallOutput = {
      type: 'shell_call_output',
      call_id: shell.call_id,
      max_output_length: 100,
      output: [
        { stdout: 'a\nb\n', stderr: '', outcome: EXIT_0 },
        { stdout: '', stderr: 'No.\n', outcome: { type: 'exit', exit_code: 1 } },
        { stdout: 'half', stderr: '', outcome: { type: 'timeout' } },
      ],
    };
    const second = await client().responses.create({ ...request, previous_response_id: first.id, input: [answer] });
    expect(second.output_text).toBe('Two files.');
    const items = await client().responses.inputItems.list(second.id, { order: 'asc' });
    expect(items.data.at(-1)).toMatchObject({ ...answer, id: expect.stringMatching(/^sho_[0-9a-f]{32}$/) });
    const third = await client().responses.create({ ...request, previous_response_id: second.id, input: 'Thanks' });
    expect(third.output_text).toBe('Bye.');
    expect((await script.conversations())[1]).toEqual([
      'user: Files?',
      'assistant: I look. [1] shell {"commands":["ls","false"],"timeout_ms":5000}',
      'tool: [1] Error: a\nb\n[exit code 0]\n\n[stderr]\nNo.\n[exit code 1]\n\nhalf\n[timed out]',
    ]);
    const [{ tools } = {}] = await script.bodies();
    expect(tools).toMatchObject([
      {
        type: 'function',
        function: {
          name: 'shell',
          description: expect.stringContaining('- pdf (/skills/pdf): Reads PDFs'),
          parameters: { type: 'object', required: ['commands'] },
        },
      },
    ]);
  });

  test('is streamed as a whole item', async () => {
    const script = await fixture.script({ calls: [LS] }, { text: 'One.' });
    const request = { model: script.model, tools: [SHELL] };
    const events: ResponseStreamEvent[] = [];
    const stream = client().responses.stream({ ...request, input: 'Files?' });
    for await (const event of stream) events.push(event);
    expect(events.map(({ type }) => type)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.output_item.done',
      'response.completed',
    ]);
    const final = await stream.finalResponse();
    const shell = onlyItem(final, 'shell_call');
    expect(events[2]).toMatchObject({ item: { ...shell, status: 'in_progress' } });
    expect(events[3]).toMatchObject({ item: shell });
    const stored = await client().responses.retrieve(final.id);
    expect(stored.output).toEqual(final.output);
    const input = [shellOutput(shell, 'a')];
    const next = client().responses.stream({ ...request, previous_response_id: final.id, input });
    expect((await next.finalResponse()).output_text).toBe('One.');
  });

  test('in a container is refused', async () => {
    const { model } = await fixture.script();
    const environments = [{ type: 'container_auto' }, { type: 'container_reference', container_id: 'c' }] as const;
    for (const environment of environments) {
      const asked = client().responses.create({ model, input: 'Go', tools: [{ type: 'shell', environment }] });
      await expect(asked).rejects.toEqual(refusedWith(400, 'unsupported_tool', `container.*"${environment.type}"`));
    }
  });

  test('must not have the name of a function of the request', async () => {
    const tools: Tool[] = [{ type: 'function', name: 'shell', parameters: {}, strict: null }, SHELL];
    const asked = client().responses.create({ model: 'any', input: 'Go', tools });
    await expect(asked).rejects.toEqual(refusedWith(400, 'duplicate_tool'));
  });
});

test('the model is told about calls with wrong arguments, and the client does not get them', async () => {
  const script = await fixture.script(
    { calls: [call('apply_patch', { type: 'update_file', path: 'a' }), call('shell', { command: 'ls' })] },
    // Repaired, as those of the server's tools are.
    { calls: [{ ...call('shell', {}), arguments: '{"commands":["ls"],}' }] as never },
    { text: 'Done.' },
  );
  const request = { model: script.model, tools: [...ALL] };
  const first = await client().responses.create({ ...request, input: 'Go' });
  expect(first.output).toMatchObject([
    { type: 'mcp_call', name: 'apply_patch', status: 'failed', error: { message: expect.stringContaining('diff') } },
    { type: 'mcp_call', name: 'shell', status: 'failed', error: { message: expect.stringContaining('commands') } },
    { type: 'shell_call', action: { commands: ['ls'] }, status: 'completed' },
  ]);
  const input = [shellOutput(first.output[2] as ItemOf<'shell_call'>, 'a')];
  const second = await client().responses.create({ ...request, previous_response_id: first.id, input });
  expect(second.output_text).toBe('Done.');
});

test('all three are answered by sending all items back, with store: false', async () => {
  const script = await fixture.script(
    { calls: [LS, call('local_shell', { command: ['ls', '-a'], working_directory: '/w' })] },
    {
      calls: [
        call('apply_patch', { type: 'update_file', path: 'a', diff: '@@\n-x\n+y' }),
        call('apply_patch', { type: 'delete_file', path: 'b' }),
      ],
    },
    { text: 'Done.' },
  );
  const input: ResponseInput = [{ role: 'user', content: 'Go' }];
  const ask = (): Promise<Response> =>
    client().responses.create({ model: script.model, input, tools: [...ALL], store: false });
  const answerOf = (item: ResponseOutputItem): ResponseInput => {
    if (item.type === 'shell_call') return [shellOutput(item, 'a b')];
    if (item.type === 'local_shell_call') return [{ type: 'local_shell_call_output', id: item.call_id, output: '{}' }];
    if (item.type !== 'apply_patch_call') return [];
    const isDeleted = item.operation.type === 'delete_file';
    const { call_id } = item;
    return [
      isDeleted
        ? { type: 'apply_patch_call_output', call_id, status: 'failed', output: 'No such file.' }
        : { type: 'apply_patch_call_output', call_id, status: 'completed' },
    ];
  };
  let response = await ask();
  expect(response.output).toMatchObject([
    { type: 'shell_call' },
    {
      type: 'local_shell_call',
      id: expect.stringMatching(/^lsh_/),
      action: {
        type: 'exec',
        command: ['ls', '-a'],
        env: {},
        timeout_ms: null,
        user: null,
        working_directory: '/w',
      },
    },
  ]);
  input.push(...(response.output as ResponseInput), ...response.output.flatMap(answerOf));
  response = await ask();
  expect(response.output).toMatchObject([
    { type: 'apply_patch_call', operation: { type: 'update_file', path: 'a', diff: '@@\n-x\n+y' } },
    { type: 'apply_patch_call', operation: { type: 'delete_file', path: 'b' }, status: 'completed' },
  ]);
  input.push(...(response.output as ResponseInput), ...response.output.flatMap(answerOf));
  response = await ask();
  expect(response.output_text).toBe('Done.');
  expect((await script.conversations()).at(-1)).toEqual([
    'user: Go',
    'assistant: [1] shell {"commands":["ls"]} [2] local_shell {"command":["ls","-a"],"working_directory":"/w"}',
    'tool: [1] a b\n[exit code 0]',
    'tool: [2] {}',
    'assistant: [3] apply_patch {"type":"update_file","path":"a","diff":"@@\\n-x\\n+y"} [4] apply_patch {"type":"delete_file","path":"b"}',
    'tool: [3] The patch was applied.',
    'tool: [4] Error: No such file.',
  ]);
});

test('can be chosen, alone or with others', async () => {
  const script = await fixture.script({ calls: [LS] }, { calls: [call('local_shell', { command: ['ls'] })] });
  const request = { model: script.model, input: 'Go', tools: [...ALL] };
  const forced = await client().responses.create({ ...request, tool_choice: { type: 'shell' } });
  expect(forced.tool_choice).toEqual({ type: 'shell' });
  onlyItem(forced, 'shell_call');
  const tools = [{ type: 'local_shell' }, { type: 'apply_patch' }];
  const allowed = await client().responses.create({
    ...request,
    tool_choice: { type: 'allowed_tools', mode: 'required', tools },
  });
  onlyItem(allowed, 'local_shell_call');
  expect(await script.bodies()).toMatchObject([{ tool_choice: 'required' }, { tool_choice: 'required' }]);
  const unknown = client().responses.create({ ...request, tools: [SHELL], tool_choice: APPLY_PATCH });
  await expect(unknown).rejects.toEqual(refusedWith(400, 'unknown_tool'));
});

test('outputs that are missing, repeated or of no call are refused', async () => {
  const script = await fixture.script({ calls: [LS] });
  const request = { model: script.model, tools: [SHELL] };
  const first = await client().responses.create({ ...request, input: 'Go' });
  const output = shellOutput(onlyItem(first, 'shell_call'), 'a');
  const next = (input: ResponseInput) =>
    client().responses.create({ ...request, previous_response_id: first.id, input });
  await expect(next([{ role: 'user', content: 'Well?' }])).rejects.toEqual(refusedWith(400, 'missing_output'));
  await expect(next([output, output])).rejects.toEqual(refusedWith(400, 'duplicate_output'));
  await expect(next([{ ...output, call_id: 'other' }])).rejects.toEqual(refusedWith(400, 'unknown_call'));
  await expect(next([...(first.output as ResponseInput), output])).rejects.toEqual(refusedWith(400, 'duplicate_call'));
  const wrong = { ...output, output: [{ stdout: '', stderr: '', outcome: { type: 'exit' } }] } as never;
  await expect(next([wrong])).rejects.toMatchObject({ status: 400, param: 'input[0].output[0].outcome.exit_code' });
});

test('outputs of another type are refused, except those of functions', async () => {
  const look = { type: 'function', name: 'look', parameters: {}, strict: null } as const;
  const patch = call('apply_patch', { type: 'delete_file', path: 'a' });
  const script = await fixture.script({ calls: [patch, call('look', {})] }, { text: 'Done.' });
  const request = { model: script.model, tools: [...ALL, look] };
  const first = await client().responses.create({ ...request, input: 'Go' });
  const looking = first.output.find((item) => item.type === 'function_call')!;
  const patching = first.output.find((item) => item.type === 'apply_patch_call')!;
  const patched = { type: 'apply_patch_call_output', call_id: patching.call_id, status: 'completed' } as const;
  const asFunction = ({ call_id }: { readonly call_id: string }) =>
    ({ type: 'function_call_output', call_id, output: 'seen' }) as const;
  const next = (...input: ResponseInput) =>
    client().responses.create({ ...request, previous_response_id: first.id, input });
  const whole = (...input: ResponseInput) =>
    client().responses.create({ ...request, input: [...(first.output as ResponseInput), ...input] });
  for (const send of [next, whole]) {
    const shown = send(shellOutput(patching, 'a'), asFunction(looking));
    await expect(shown).rejects.toEqual(refusedWith(400, 'invalid_value', "Send .* 'apply_patch_call_output'"));
    const seen = send({ ...patched, call_id: looking.call_id }, asFunction(patching));
    await expect(seen).rejects.toEqual(refusedWith(400, 'invalid_value', "Send .* 'function_call_output'"));
  }
  expect((await next(asFunction(patching), asFunction(looking))).output_text).toBe('Done.');
});

test('are part of a conversation, and chats show them with their results', async () => {
  const script = await fixture.script({ calls: [LS] }, { text: 'One.' });
  const { id: conversation } = await client().conversations.create();
  const request = { model: script.model, tools: [SHELL], conversation };
  const first = await client().responses.create({ ...request, input: 'Files?' });
  const shell = onlyItem(first, 'shell_call');
  const answer: ResponseInputItem.ShellCallOutput = {
    ...shellOutput(shell, ''),
    output: [{ stdout: '', stderr: '', outcome: { type: 'exit', exit_code: 2 } }],
  };
  const second = await client().responses.create({ ...request, input: [answer] });
  expect(second.output_text).toBe('One.');
  const { data } = await client().conversations.items.list(conversation, { order: 'asc' });
  expect(data).toMatchObject([{ type: 'message' }, shell, answer, { type: 'message' }]);
  const shown = await fetch(`${fixture.baseURL}/chat/${conversation}`);
  expect(await shown.text()).toContain('[exit code 2]');
});

test('are available in a continued conversation when an item declares them', async () => {
  const script = await fixture.script({ calls: [LS] }, { text: 'One.' });
  const declared = { type: 'additional_tools', role: 'developer', tools: [SHELL] } as never;
  const input: ResponseInput = [declared, { role: 'user', content: 'Files?' }];
  const first = await client().responses.create({ model: script.model, input });
  const shell = onlyItem(first, 'shell_call');
  const { model } = script;
  const next = { model, previous_response_id: first.id, input: [shellOutput(shell, 'a')] };
  expect((await client().responses.create(next)).output_text).toBe('One.');
  expect(await script.bodies()).toMatchObject([1, 2].map(() => ({ tools: [{ function: { name: 'shell' } }] })));
});

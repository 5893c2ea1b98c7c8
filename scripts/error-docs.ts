/**
 * Writes docs/errors.md from the tables below: `npm run docs:errors`. The types keep the tables complete, and
 * `test/error-docs.test.ts` compares them with the sources.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { AgentErrorCode, ErrorType, Limit, ModelErrorCode, TreadleErrorCode } from '@treadle/core';
import type { ApiErrorCode } from '@treadle/server';
import type { McpErrorCode } from '@treadle/tools/mcp';
import { EXIT } from 'treadle';
import { table } from './markdown.ts';

/** What a code means, and what to do. */
type Entry = readonly [meaning: string, remedy: string];
type Table<Code extends string> = Readonly<Record<Code, Entry>>;

/** `code` of a `TreadleError`. */
export const THROWN: Table<TreadleErrorCode> = {
  'invalid-options': ['An option is missing, unknown or not valid.', 'Change the option that the message names.'],
  'invalid-input': ['The input is not a valid conversation.', 'Change the message that the error names.'],
  'invalid-tool': [
    'A tool cannot work: its name, its schema or an option is not valid.',
    'Change the definition as the message says. [Writing tools](writing-tools.md) lists the options.',
  ],
  'invalid-agent': [
    'The definition of an agent could never work, or names something that does not exist here.',
    'Change the definition as the message says. See [typed agents](typed-agents.md) and [agents in files](agents.md).',
  ],
  'unknown-agent': ['There is no agent of this name.', 'Use one of the names in the message. See [agents](agents.md).'],
  'duplicate-tool': ['Two tools of a run have the same name.', 'Rename one, or give the tools of a server a prefix.'],
  'unknown-run': [
    'The journal has no run with this id.',
    'Check the id and the store. To start a run, pass `input`; to resume one, omit it.',
  ],
  'no-run': [
    'A tool used `hold` or `offer`, but no run called it.',
    'Call the tool in a run, not alone with `registry().execute`.',
  ],
  'tools-changed': [
    'The run was stored with other tools than it is resumed with.',
    'Pass the same tools, or set `acceptChangedTools`. See [durable runs](durable-runs.md).',
  ],
  'program-changed': [
    'The run was stored with another program as its model.',
    'Pass the same program, or set `acceptChangedProgram`. See [workflows](workflows.md).',
  ],
  'run-exists': [
    'There is already a run, or a conversation, with this id.',
    'Choose another id, or resume the run: without `input`, or with `resume: "auto"`.',
  ],
  'answer-unfit': [
    'The run does not wait for this answer, or not any more.',
    'Read `waiting` of the run again, and answer what it lists.',
  ],
  'answer-refused': [
    'The policy does not accept the answer, such as an approval by someone who may not approve.',
    'Let another person answer. See [policies and approvals](policies.md).',
  ],
  'journal-failed': [
    'The journal cannot be read or written. The run has stopped before the step that it could not record.',
    'Fix the store (`cause` has its error), then resume the run.',
  ],
  'ledger-failed': ['The ledger of the budgets failed (`cause`).', 'Fix the ledger, then resume the run.'],
  'journal-damaged': [
    'The journal contradicts itself, or a part of it is missing.',
    'Restore a backup, or fork the run before the damaged entry. `treadle store check` finds what is damaged.',
  ],
  'run-driven': [
    'Another call or another process drives the run.',
    'Wait for it. If that process hangs: `treadle runs release --help`.',
  ],
  'lease-lost': [
    'Another process has taken over the run, so nothing was written.',
    'Nothing: the other process continues the run. Read it again to see its state.',
  ],
  'store-full': ['The disk is full. What was stored before is intact.', 'Free some space, then resume the run.'],
  'store-read-only': [
    'The store cannot be written.',
    'Give the user write permission for the file and its folder, or choose another path.',
  ],
  'store-locked': ['Another program has locked the store.', 'Stop that program, and retry.'],
  'store-newer': ['A newer version of Treadle has written the store.', 'Upgrade Treadle, or choose another store.'],
  'store-failed': [
    'The store is missing, damaged, closed or not a store, or its files were removed while it was open.',
    'Do what the message says. See [backup, restore and check](store.md).',
  ],
};

/** `outcome.error.code` of a run that failed: the model. */
export const MODEL: Table<ModelErrorCode> = {
  auth: ['The provider rejects the key, or there is none.', 'Set the right key. `treadle doctor` checks it.'],
  'rate-limit': ['The provider accepts no more requests at the moment.', 'Retry later, or add a fallback.'],
  overloaded: ['The provider is overloaded or unavailable.', 'Retry later, or add a fallback.'],
  'context-length': [
    'The conversation is longer than the model accepts.',
    'Use compaction or a model with a larger context, or send less.',
  ],
  'invalid-request': [
    'The provider rejects the request. The message of the error is that of the provider.',
    'Change the model, the setting or the input that it names.',
  ],
  timeout: ['The model did not reply in time.', 'Retry, or raise the time limit of the model.'],
  network: ['The model cannot be reached.', 'Check the address, the network and the proxy.'],
  protocol: ['The reply of the model cannot be read.', 'Retry. If it happens again, use another model or protocol.'],
  'content-filter': ['A filter of the provider has blocked the input or the reply.', 'Change the input.'],
  cancelled: ['The model call was cancelled.', 'Nothing, if you cancelled the run.'],
  'program-failed': ['A program that is the model threw an error.', 'Fix the program, and resume or fork the run.'],
  'program-diverged': [
    'A program asks for other calls than the run has made before.',
    'Make the program deterministic, or fork the run. See [workflows](workflows.md).',
  ],
};

/** `outcome.error.code` of a run that failed: not the model. */
export const RUN: Table<string> = {
  'output-invalid': [
    'The answer did not match the schema in `output`, also after it was corrected. The message names the problems.',
    'Simplify the schema, or use a [typed agent](typed-agents.md) with more attempts.',
  ],
  'tool-choice-unmet': [
    'The model did not call the tool that `toolChoice` forces, also when it was asked again.',
    'Use a model that supports forced calls, or leave the choice to the model.',
  ],
  'empty-reply': ['The model replied with neither text nor calls, twice.', 'Retry, or use another model.'],
  'prepare-failed': ['`prepareTurn` threw, or returned something that is not valid.', 'Fix the function.'],
  'tokens-unknown': [
    '`limits.tokens` is set, but the model does not report tokens.',
    'Limit turns, calls or duration instead.',
  ],
  'cost-unknown': ['`limits.cost` is set, but the price of the model is not known.', 'Set a price, or limit tokens.'],
  'crash-loop': [
    'The process ended several times in a row while the same call was running.',
    'Fix the tool, and fork the run before that call.',
  ],
  guardrail: ['A guardrail stopped the run. The message is its reason.', 'Change the input, or the guardrail.'],
  'no-tool-called': [
    'The model of a typed agent called no tool, although it had to.',
    'Use a model that supports tools, or allow text. Reported as `INVALID_RESPONSE`.',
  ],
  'submit-before-output': [
    'The model submitted before it had given an output.',
    'Say in the instructions when to submit. Reported as `SUBMIT_BEFORE_OUTPUT`.',
  ],
  'prompt-failed': ['The function for the prompt of the next attempt threw.', 'Fix it. Reported as `PROMPT_FAILED`.'],
};

/** `outcome.limit` of a run that was exhausted. */
export const LIMITS: Table<Limit> = {
  turns: ['`maxTurns`: model calls. The server reports `max_turns`.', 'Raise it, or fork the run with a higher limit.'],
  attempts: ['`maxAttempts`: outputs of a typed agent that were rejected.', 'Read the last problem; raise it.'],
  calls: ['`limits.calls`: tool calls. The server reports `max_tool_calls`.', 'Raise it, or give better tools.'],
  tokens: ['`limits.tokens`: tokens of all model calls. The server reports `max_tokens`.', 'Raise it.'],
  cost: ['`limits.cost`: US dollars. The server reports `max_cost`.', 'Raise it, or use a cheaper model.'],
  duration: [
    '`limits.durationMs`: working time, without pauses. The server reports `max_duration`.',
    'Raise it, or shorten the time limits of tools.',
  ],
  errors: [
    '`errorLimit`: turns in a row whose calls all failed. The server reports `tool_errors`.',
    'Look at the results of the calls, and fix the tool or the instructions.',
  ],
  repetition: [
    '`repeatLimit`: the same call with the same result. The server reports `repetition`.',
    'Mark a tool that may be repeated with `polling`.',
  ],
  budget: ['A [budget](budgets.md) of the ledger. The server reports `budget`.', 'Raise the budget, or wait.'],
};

/** `error.code` of a typed agent. */
export const AGENT: Table<AgentErrorCode> = {
  MAX_ITERATIONS: ['An attempt used all its iterations without an output.', 'Raise `maxIterationsPerAttempt`.'],
  SUBMIT_BEFORE_OUTPUT: ['The model submitted before it had given an output.', 'Say in the prompt when to submit.'],
  INVALID_RESPONSE: ['The model called no tool; `context.text` is its reply.', 'Use a model that supports tools.'],
  MAX_ATTEMPTS_EXCEEDED: [
    'No output was accepted; `context.lastError` says why.',
    'Fix the validator or the prompt, or raise `maxAttempts`.',
  ],
  EXECUTION_CANCELLED: ['The signal aborted, or the run was cancelled.', 'Nothing, if you cancelled it.'],
  LIMIT_EXCEEDED: ['A limit or a budget was reached: `context.limit`.', 'Raise the limit.'],
  API_ERROR: ['The run failed with `context.code`, such as `auth`.', 'See the codes of failed runs above.'],
  PROMPT_FAILED: ['A function that writes a prompt threw.', 'Fix the function that `context.prompt` names.'],
  STATE_PROJECTION_FAILED: ['`projectFinalState` threw.', 'Fix the function. The run itself is intact.'],
  EXECUTION_PAUSED: ['The run waits: `context.waiting`.', 'Execute it again with `runId` and `answers`.'],
};

/** `errorType` of a result. The model reads the text of the result; a program can read the type. */
export const RESULT: Table<ErrorType> = {
  timeout: ['The call took too long.', 'Raise `timeoutMs` of the tool, or let the model ask for more time.'],
  not_found: ['There is no such tool, or what the call names does not exist.', 'Nothing: the model corrects its call.'],
  permission_denied: [
    'The tool is not in the allowed set, or the system refused it.',
    'Allow the tool, or give the process the permission.',
  ],
  invalid_params: ['The arguments do not match the schema.', 'Nothing: the model corrects its call.'],
  execution_failed: ['Any other error of the tool.', 'Read the text of the result; fix the tool.'],
  denied: [
    'The policy, a person, the tool choice or a limit refused the call.',
    'Read the text: it names the rule. See [policies and approvals](policies.md).',
  ],
  interrupted: [
    'The call was lost in a crash, or the run ended before it had a result.',
    'Give the tool an [effect](writing-tools.md#effect), or `verify`.',
  ],
};

/** `code` of an `McpError`. */
export const MCP: Table<McpErrorCode> = {
  'cannot-start': ['There is no such program, or it cannot run.', 'Check `command` and the path.'],
  ended: ['The process of the server has ended.', 'Read the end of its output in the message.'],
  unreachable: ['There was no HTTP answer.', 'Check the address and the network.'],
  unauthorized: ['The server wants a sign-in or credentials.', 'Sign in: `treadle mcp login NAME`; or set a header.'],
  protocol: ['It does not speak MCP, or no version that is known.', 'Check the address; upgrade the server.'],
  refused: ['The server answered with an error.', 'Read its message.'],
  timeout: ['The server did not answer in time.', 'Raise `timeout_ms` of the server.'],
  'too-large': ['The server sent more than is accepted.', 'Ask for less.'],
  changed: ['The server describes the tool in another way than before.', 'Approve the tool again.'],
  aborted: ['The call was cancelled.', 'Nothing, if you cancelled it.'],
  closed: ['`close` was called.', 'Connect again.'],
};

const FIX_FIELD = 'Change the field that `param` names, as the message says.';
const RETRY = 'Retry after the time in `Retry-After`, or a moment later.';

/** `error.code` of the HTTP APIs, by the status that usually comes with it. */
export const API: Readonly<Record<ApiErrorCode, readonly [status: number, ...Entry]>> = {
  conversation_waits: [
    409,
    'The last response of the conversation waits for results or approvals of its client.',
    'Send them with `POST /v1/responses`, or cancel the response.',
  ],
  approval_decided: [
    409,
    'The approval request was decided before, in another response.',
    'Get that response, or continue from it. The message names it.',
  ],
  item_in_use: [
    409,
    'A run has read the item, so it cannot be deleted from the conversation.',
    'Delete the conversation, or continue in a branch of it.',
  ],
  mutually_exclusive_parameters: [
    400,
    'Two fields of the request exclude each other.',
    'Leave one of the fields out that the message names.',
  ],
  response_in_conversation: [
    409,
    'The response belongs to a conversation, and is not deleted alone.',
    'Delete the conversation.',
  ],
  duplicate_item: [
    400,
    'The conversation already has an item with this id, or the request has it twice.',
    'Leave `id` out, or choose another.',
  ],
  device_not_found: [404, 'There is no such device.', 'Get `/v1/devices`, and check `[edge.devices.NAME]`.'],
  test_unavailable: [404, 'This server cannot test models.', 'Pass `testModel` to the server, or use `treadle serve`.'],
  empty_items: [400, 'The request adds no items.', 'Send at least one item.'],
  invalid_json: [400, 'The body is not JSON.', 'Send valid JSON in UTF-8.'],
  invalid_type: [400, 'A field has the wrong type.', FIX_FIELD],
  invalid_value: [400, 'A field has a value that is not supported.', FIX_FIELD],
  missing_required_parameter: [400, 'A required field is missing.', FIX_FIELD],
  unknown_parameter: [400, 'There is no such field.', 'Remove the field, or correct its name.'],
  unsupported_parameter: [
    400,
    'The field exists at OpenAI, but this server or this model cannot honour it.',
    'Remove it. [What the server supports](server-support.md) lists all fields.',
  ],
  unsupported_value: [400, 'The value exists at OpenAI, but not here.', FIX_FIELD],
  string_above_max_length: [400, 'A text is too long.', FIX_FIELD],
  string_below_min_length: [400, 'A text is too short.', FIX_FIELD],
  array_above_max_length: [400, 'A list is too long.', FIX_FIELD],
  array_below_min_length: [400, 'A list is too short.', FIX_FIELD],
  integer_above_max_value: [400, 'A number is too large.', FIX_FIELD],
  integer_below_min_value: [400, 'A number is too small.', FIX_FIELD],
  decimal_above_max_value: [400, 'A number is too large.', FIX_FIELD],
  decimal_below_min_value: [400, 'A number is too small.', FIX_FIELD],
  object_above_max_properties: [400, 'An object has too many properties.', FIX_FIELD],
  nesting_too_deep: [400, 'The JSON is nested too deeply.', 'Send JSON that is less nested.'],
  empty_input: [400, 'The input is empty.', 'Send a message, or the outputs of calls.'],
  invalid_prompt: [400, 'The provider rejects the request; the message is its own.', 'Change what it names.'],
  context_length_exceeded: [400, 'The input is longer than the model accepts.', 'Send less, or compact it.'],
  content_filter: [400, 'A filter of the provider has blocked it.', 'Change the input.'],
  guardrail: [400, 'A guardrail of the server has stopped the run; the message is its reason.', 'Change the input.'],
  invalid_url: [400, 'It is not an http(s) URL or a data URL.', FIX_FIELD],
  invalid_image_url: [400, 'The URL of an image cannot be used.', FIX_FIELD],
  invalid_file: [400, 'A file cannot be used.', FIX_FIELD],
  invalid_base64: [400, 'The data is not valid base64.', FIX_FIELD],
  invalid_text: [400, 'An attachment is not text in UTF-8.', 'Convert it, or send it with its real type.'],
  invalid_function_parameters: [400, 'The parameters of a function are not a JSON Schema of an object.', FIX_FIELD],
  invalid_json_schema: [400, 'The schema of the answer cannot be used.', FIX_FIELD],
  schema_too_large: [400, 'The schema of the answer is too long.', 'Shorten it.'],
  tool_too_large: [400, 'The definition of a tool is too long.', 'Shorten its schema or description.'],
  duplicate_tool: [400, 'Two tools have the same name.', 'Rename one, or omit it.'],
  unknown_tool: [400, 'There is no such tool.', 'Name one of the tools of the request or of the server.'],
  unsupported_tool: [400, 'The server does not have this type of tool.', 'Remove it, or use a function.'],
  missing_output: [400, 'A call of the conversation has no output.', 'Send a `function_call_output` for each call.'],
  unknown_call: [400, 'There is no call with this `call_id`.', 'Use the `call_id` of the call.'],
  duplicate_output: [400, 'A call has two outputs.', 'Send one.'],
  duplicate_call: [400, 'Two calls have the same `call_id`.', 'Give each call its own.'],
  missing_approval: [400, 'An approval request has no answer.', 'Send an `mcp_approval_response`.'],
  unknown_approval: [400, 'There is no such approval request.', 'Use the id of the request.'],
  missing_tool_result: [400, 'A call has no message of the role `tool`.', 'Send a result for each call.'],
  unknown_tool_call: [400, 'A result answers a call that does not exist.', 'Use the id of the call.'],
  duplicate_tool_result: [400, 'A call has two results.', 'Send one.'],
  thread_not_found: [
    404,
    'The message in `previous_message_id` is not stored, or was created without `thread`.',
    'Send the whole conversation as a new thread, as the official client does.',
  ],
  thread_already_continued: [
    400,
    'Another request has continued the thread from this message.',
    'Continue from the newest message, or send the whole conversation as a new thread.',
  ],
  thread_continue_in_flight: [
    400,
    'Another request is continuing the thread from this message.',
    'Wait for its end, or send the whole conversation as a new thread.',
  ],
  thread_fingerprint_mismatch: [
    400,
    'The request has other `system` or `tools` than the thread that it continues.',
    'Leave them out, or send the whole conversation as a new thread.',
  ],
  previous_response_not_found: [
    400,
    'The response in `previous_response_id` does not exist, or belongs to another tenant.',
    'Check the id; responses are deleted after `retention_days`. Or send the whole conversation.',
  ],
  item_not_found: [
    404,
    'The conversation has no such item; 400: a referenced item is not stored.',
    'List the items of the conversation, or send the item itself.',
  ],
  message_not_found: [400, 'The conversation has no such message.', 'List its messages.'],
  invalid_encrypted_content: [400, 'Encrypted content is not from this server, or was changed.', 'Omit the item.'],
  invalid_idempotency_key: [400, 'The `Idempotency-Key` is empty, too long or not ASCII.', 'Choose another.'],
  stream_not_stored: [400, 'The events of this response are not stored.', 'Get it without `stream`.'],
  invalid_fork: [400, 'The run cannot be forked as the request says.', 'Change what the message names.'],
  invalid_request: [400, 'It is not valid HTTP/1.1.', 'Check the client and the proxy.'],
  websocket_connection_limit_reached: [400, 'The WebSocket was open for its longest time.', 'Open a new one.'],
  invalid_api_key: [401, 'The key is missing, wrong or has expired.', 'Send `Authorization: Bearer KEY`.'],
  insufficient_quota: [
    429,
    'A budget of the key, its tenant or the server has not enough left for the request, or the credit at the provider is used up.',
    'Ask the operator to raise the budget that the message names or the credit, or wait until the budget has enough.',
  ],
  insufficient_scope: [403, 'The key may not do this.', 'Use a key with the scope that the message names.'],
  not_local: [
    403,
    'A server without keys serves only programs on its machine.',
    'Configure keys: see [serving](serve.md#keys).',
  ],
  origin_not_allowed: [403, 'Web pages of this origin may not open a WebSocket.', 'Add it to `cors_origins`.'],
  model_not_found: [404, 'The server has no such model.', 'Use one that `GET /v1/models` lists.'],
  response_not_found: [404, 'There is no such response.', 'Check the id; it may be deleted, or was not stored.'],
  conversation_not_found: [404, 'There is no such conversation.', 'Check the id.'],
  attachment_not_found: [404, 'The conversation has no such attachment.', 'Check the id.'],
  request_not_found: [404, 'The conversation has no such approval or question.', 'Use the id of its event.'],
  run_not_found: [404, 'There is no such run.', 'Check the id; it may be deleted, or was not stored.'],
  log_not_kept: [404, 'The server keeps no log.', 'Set `log_file` in `[server]`, and restart the server.'],
  unknown_url: [404, 'There is no such address.', 'Check the path; most start with `/v1`.'],
  method_not_allowed: [405, 'The address exists, but not with this method.', 'Use one that `Allow` lists.'],
  unsupported_protocol: [406, '`Accept` names an unknown protocol.', 'Use one that the message lists.'],
  request_timeout: [408, 'The request was not complete in time.', 'Send it again.'],
  agent_not_found: [404, 'There is no agent with this name.', 'Use one of the agents that the message lists.'],
  workflow_not_found: [
    404,
    'There is no workflow with this name, or the run is not one of it.',
    'Use one of the workflows that the message lists.',
  ],
  trigger_not_found: [404, 'There is no trigger with this name for requests.', 'Check the path, and `[[triggers]]`.'],
  invalid_signature: [
    401,
    'The request of a trigger is not signed, or not with its secret.',
    'Sign it as the page says.',
  ],
  memory_not_found: [404, 'Nothing with this id is remembered.', 'Use one that `GET /v1/memory` lists.'],
  schedule_not_found: [404, 'There is no schedule with this name.', 'Use one that `GET /v1/schedules` lists.'],
  schedule_exists: [409, 'There is a schedule with this name.', 'Delete it, or choose another name.'],
  schedule_configured: [409, 'The schedule is in the configuration of the server.', 'Change it there.'],
  too_many_schedules: [400, 'The tenant has 1,000 schedules.', 'Delete some.'],
  agents_not_writable: [
    403,
    'Definitions of agents cannot be changed over HTTP.',
    'Change their files, or set `write = true` in `[agents]`.',
  ],
  injection_suspected: [
    400,
    'What was given to an agent looks like an attempt to replace its instructions.',
    'Rephrase it, or change `injection` in `[agents]`.',
  ],
  invalid_agent: [
    400,
    'The definition of an agent is not valid, or names something that the server does not have.',
    'Change what the message names.',
  ],
  invalid_inputs: [
    422,
    'The inputs do not match those that the agent describes.',
    'Send the inputs that the message names.',
  ],
  task_in_use: [
    409,
    'The `task_id` belongs to a run with other inputs.',
    'Send the same inputs, or another `task_id`.',
  ],
  answer_unfit: [409, 'The run does not wait for this answer, or not any more.', 'Read what it waits for again.'],
  conversation_busy: [409, 'An answer of the conversation is in progress.', 'Wait, cancel it, or add to it.'],
  conversation_idle: [409, 'No answer of the conversation is in progress.', 'Send a message.'],
  idempotency_key_reused: [409, 'The key was used with another body.', 'Use a new key for a new request.'],
  response_deleted: [409, 'The response or conversation of this key was deleted.', 'Use a new key.'],
  response_in_progress: [409, 'The response is still running.', 'Wait for its end, or cancel it.'],
  run_driven_elsewhere: [409, 'A process that takes no requests drives the run.', 'Act on it there, or wait.'],
  run_not_forkable: [409, 'The run cannot be forked here.', 'Fork a run of a response.'],
  run_not_replayable: [
    409,
    'The entries of the run do not replay.',
    '`POST /v1/runs/{id}/replay` shows the first that differs.',
  ],
  run_not_resumable: [409, 'No request started the run.', 'Use its parent, or `treadle runs resume`.'],
  run_not_running: [409, 'The run does not run.', 'Start or resume it first.'],
  request_too_large: [413, 'The body is larger than `max_body_bytes`.', 'Send less, or raise the limit.'],
  input_too_large: [413, 'The conversation is too large.', 'Send less.'],
  attachment_too_large: [413, 'An attachment is too large.', 'Send a smaller one.'],
  unsupported_media_type: [415, 'The body is not JSON, not UTF-8, or compressed.', 'Send `application/json`.'],
  upgrade_required: [426, 'The address is for WebSockets.', 'Open a WebSocket, or use POST.'],
  rate_limit_exceeded: [429, 'The limit of the key or of the provider is reached.', RETRY],
  too_many_runs: [429, 'The server runs as many responses as it may.', RETRY],
  too_many_streams: [429, 'Too many event streams are open.', 'Close one, or retry.'],
  too_many_requests: [429, 'Too many requests of the key are in progress.', RETRY],
  too_many_bytes: [429, 'The requests in progress are too large together. Also with 503.', RETRY],
  headers_too_large: [431, 'The headers are too large.', 'Send fewer headers or cookies.'],
  cancelled: [499, 'The client disconnected, or the run was cancelled. Also with 503.', 'Send it again, if needed.'],
  internal_error: [500, 'The server failed unexpectedly.', 'Look into its log for the request id.'],
  program_failed: [500, 'A model that is a program threw an error.', 'Fix the program.'],
  program_diverged: [500, 'A program asks for other calls than before.', 'Make the program deterministic.'],
  server_error: [502, 'The run failed for a reason without a code of its own.', 'Look into the log of the server.'],
  output_invalid: [502, 'The answer does not match its schema.', 'Retry, or simplify the schema.'],
  model_auth: [502, 'The provider rejects the key of the server, or the model.', 'The operator checks key and name.'],
  model_unreachable: [502, 'The server cannot reach the model.', 'The operator checks address and network.'],
  model_protocol: [502, 'The reply of the model cannot be read.', 'Retry, or use another model.'],
  model_overloaded: [503, 'The provider is overloaded.', RETRY],
  tools_unavailable: [503, 'The tools of a server cannot be listed.', 'Check the MCP server; retry.'],
  store_unavailable: [
    503,
    'The store cannot be used: it is locked, read-only or removed, or the disk is full or fails.',
    RETRY,
  ],
  shutting_down: [503, 'The server is shutting down.', RETRY],
  server_stopping: [503, 'The server stopped; the response resumes after the restart.', 'Get it by its id later.'],
  changes_lost: [
    503,
    'Too many runs changed before a stream was read.',
    'Open the stream again, and read the list again.',
  ],
  response_interrupted: [
    503,
    'The store cannot be written, or another process continues the response.',
    'Get it by its id, or send it again.',
  ],
  response_waiting: [503, 'The response waits for a time, an approval or an answer.', 'Answer it, or get it later.'],
  run_driver_silent: [503, 'The process that drives the run did not reply.', 'Look at the run before you retry.'],
  device_offline: [503, 'The device is not online, so its tools are not known.', 'Start it, or try again later.'],
  device_silent: [504, 'The device does not answer.', 'Look at its log, and at the broker.'],
  model_timeout: [504, 'The model took too long.', 'Retry later.'],
};

/** The exit codes of `treadle`. */
export const EXITS: Table<keyof typeof EXIT> = {
  completed: ['Completed. The answer is on standard output.', 'Nothing.'],
  failed: ['The run, the call or the check failed.', 'Read standard error. `TREADLE_DEBUG=1` adds the stack trace.'],
  usage: ['The command or its configuration is invalid. Nothing was run.', 'Correct what the message names.'],
  exhausted: [
    'A limit was reached before the task was done.',
    'Raise the limit, or continue a copy with more: `treadle runs fork ID`.',
  ],
  paused: [
    'The run waits for an approval or a result that could not be given here.',
    'Answer it: `treadle runs resume ID`, or `--yes` for approvals.',
  ],
  denied: [
    'The run completed, but calls were denied: by a rule, or because nobody could be asked.',
    'Read standard error, and change the rules. `--yes` approves what they ask about.',
  ],
  cancelled: ['Stopped with Ctrl-C or SIGTERM.', '`treadle runs resume ID` continues a stored run.'],
};

export function errorPage(): string {
  const rows = (entries: Table<string>): string =>
    table(
      ['code', 'meaning', 'what to do'],
      Object.entries(entries).map(([code, [meaning, remedy]]) => [`\`${code}\``, meaning, remedy]),
    );
  return [
    '# Errors',
    '<!-- Generated by `npm run docs:errors`. Change scripts/error-docs.ts instead. -->',
    'Every code of an error, what it means, and what to do. The message of an error says more than its code: it names what was ' +
      'wrong in this case. Codes are stable, messages are not.',
    '- Misuse, and a journal or store that fails, **throw** a `TreadleError`.\n' +
      '- A **run** does not throw, unless you call `orThrow()` of its result, which throws a `RunError`. Its `outcome` is `completed`, `exhausted` with a `limit`, `failed` with an `error`, or ' +
      '`cancelled`. Without an outcome, the run has paused.\n' +
      '- A **call** of a tool that fails is a result with an `errorType`. The model reads its text, and the run continues.\n' +
      '- The **server** answers with `{ "error": { "message", "type", "param", "code" } }`.\n' +
      '- The **command** prints what to do on standard error, and has exit codes.',
    '## Thrown errors',
    'Each is a `TreadleError` with a `code`.',
    rows(THROWN),
    '## Failed runs',
    '`outcome.error.code` of a run that `failed`. With a journal, a run that failed because of its model can be resumed: the model is ' +
      'called again. These codes are of the model:',
    rows(MODEL),
    'Failures that may pass, such as `rate-limit` and `overloaded`, are [retried](models.md#several-models-as-one) before the run fails. ' +
      'These codes are of the run:',
    rows(RUN),
    '`orThrow()` throws a `RunError` whose `code` is one of these two lists, or `exhausted` at a limit, `cancelled`, `paused` or ' +
      '`detached`. For a typed agent it is that of the agent. See [results and failures](library.md#results-and-failures).',
    '## Limits',
    '`outcome.limit` of a run that was `exhausted`, and the option that sets it.',
    rows(LIMITS),
    '## Typed agents',
    '`error.code` of a `failure` of `executeAgent`. Its type determines the type of `error.context`.',
    rows(AGENT),
    '## Results of tools',
    '`errorType` of a result.',
    rows(RESULT),
    '## MCP servers',
    '`code` of an `McpError`.',
    rows(MCP),
    '## Server',
    '`error.code` of the HTTP APIs, with the status that it usually comes with. [What the server supports](server-support.md#errors) says ' +
      'which of them a response can have that has already begun.',
    table(
      ['status', 'code', 'meaning', 'what to do'],
      Object.entries(API).map(([code, [status, ...entry]]) => [String(status), `\`${code}\``, ...entry]),
    ),
    '## Command',
    'The exit codes of `treadle`. `treadle COMMAND --help` lists those of a command.',
    table(
      ['exit code', 'meaning', 'what to do'],
      Object.entries(EXITS).map(([name, entry]) => [String(EXIT[name as keyof typeof EXIT]), ...entry]),
    ),
  ].join('\n\n');
}

if (import.meta.main) {
  writeFileSync(path.join(import.meta.dirname, '..', 'docs', 'errors.md'), `${errorPage()}\n`);
}

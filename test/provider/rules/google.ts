import { firstProblem, isRecord, type Issued, type RuleOptions, type Rules } from './rules.ts';

type Part = Readonly<Record<string, unknown>>;

interface Content {
  readonly role?: unknown;
  readonly parts?: readonly Part[];
}

const FIELDS = new Set(
  'contents tools toolConfig systemInstruction generationConfig safetySettings cachedContent'.split(' '),
);
const DATA = ['text', 'inlineData', 'fileData', 'functionCall', 'functionResponse'];
const NAME = /^[a-zA-Z_][\w.:-]{0,63}$/;
/** Accepted instead of a signature. */
const SKIP = 'skip_thought_signature_validator';

/** Why the Gemini API would reject this body; undefined if it would accept it. */
export const googleProblem: Rules = (body, options = {}) => {
  if (!isRecord(body)) return 'Invalid JSON payload received. Unexpected token.';
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `Invalid JSON payload received. Unknown name "${unknown}": Cannot find field.`;
  const { contents } = body;
  if (!Array.isArray(contents) || contents.length === 0)
    return '* GenerateContentRequest.contents: contents is not specified\n';
  return (
    toolsProblem(body) ??
    firstProblem(contents as Content[], contentProblem) ??
    orderProblem(contents as Content[], options) ??
    firstProblem(contents as Content[], (content, index) => signatureProblem(content, index, contents, options))
  );
};

function toolsProblem({ tools, toolConfig, generationConfig }: Readonly<Record<string, unknown>>): string | undefined {
  const declared = ((tools ?? []) as { functionDeclarations: { name: string; parameters?: unknown }[] }[])
    .flatMap(({ functionDeclarations }) => functionDeclarations)
    .map(({ name }) => name);
  const at = declared.findIndex((name) => !NAME.test(name));
  if (at !== -1) return `* GenerateContentRequest.tools[0].function_declarations[${at}].name: Invalid function name.`;
  if (new Set(declared).size < declared.length) return 'Duplicate function declaration found.';
  const { responseMimeType, responseJsonSchema } = (generationConfig ?? {}) as Part;
  if (responseJsonSchema !== undefined && responseMimeType !== 'application/json')
    return 'Response schema is only supported with response mime type: `application/json`';
  if (toolConfig === undefined) return undefined;
  const { mode, allowedFunctionNames } = (toolConfig as { functionCallingConfig: Part }).functionCallingConfig;
  if (declared.length === 0) return 'Function calling config is set without function_declarations.';
  if (!['AUTO', 'ANY', 'NONE', 'VALIDATED'].includes(String(mode)))
    return `Invalid value at 'tool_config.function_calling_config.mode', "${String(mode)}"`;
  if (allowedFunctionNames === undefined) return undefined;
  if (mode !== 'ANY' && mode !== 'VALIDATED')
    return 'Allowed function names should be set only when the function calling mode is ANY or VALIDATED.';
  const foreign = (allowedFunctionNames as string[]).find((name) => !declared.includes(name));
  return foreign === undefined ? undefined : `Allowed function name ${foreign} is not in the function declarations.`;
}

function contentProblem({ role, parts }: Content, index: number): string | undefined {
  const place = `GenerateContentRequest.contents[${index}]`;
  if (role !== 'user' && role !== 'model') return 'Please use a valid role: user, model.';
  if (!Array.isArray(parts) || parts.length === 0) return `* ${place}.parts: contents.parts must not be empty.\n`;
  return firstProblem(parts as Part[], (part, at) => {
    if (DATA.filter((field) => field in part).length !== 1)
      return `* ${place}.parts[${at}].data: required oneof field 'data' must have one initialized field`;
    if (part['text'] === '' && part['thoughtSignature'] === undefined)
      return `Unable to submit request because it must have a text parameter (contents[${index}].parts[${at}])`;
    const { functionCall, functionResponse } = part as Readonly<Record<string, Part | undefined>>;
    const name = (functionCall ?? functionResponse)?.['name'];
    if ((functionCall ?? functionResponse) && !NAME.test(String(name)))
      return `* ${place}.parts[${at}].function_${functionCall ? 'call' : 'response'}.name: Invalid function name.`;
    if (functionCall && !isRecord(functionCall['args']))
      return notAnObject(`contents[${index}].parts[${at}].function_call.args`);
    if (functionResponse && !isRecord(functionResponse['response']))
      return notAnObject(`contents[${index}].parts[${at}].function_response.response`);
    return functionCall !== undefined && role === 'user'
      ? 'Please ensure that function call parts are in contents of the role model.'
      : undefined;
  });
}

function notAnObject(place: string): string {
  return `Invalid value at '${place}' (type.googleapis.com/google.protobuf.Struct)`;
}

function orderProblem(contents: readonly Content[], { strict = true }: RuleOptions): string | undefined {
  if (strict && contents.at(-1)!.role !== 'user') return 'Please ensure that multiturn requests end with a user role.';
  return (
    firstProblem(contents, ({ role, parts }, index) => {
      const previous = contents[index - 1];
      if (strict && previous?.role === role)
        return `two contents of the role ${String(role)} in a row (contents[${index}])`;
      if (callsIn({ parts: parts! }).length > 0 && previous?.role !== 'user')
        return 'Please ensure that function call turn comes immediately after a user turn or after a function response turn.';
      const responses = parts!.flatMap(({ functionResponse }) =>
        functionResponse === undefined ? [] : [functionResponse as Part],
      );
      const calls = previous === undefined ? [] : callsIn(previous);
      if (responses.length > 0 && calls.length === 0)
        return 'Please ensure that function response turn comes immediately after a function call turn.';
      if (responses.length !== calls.length)
        return 'Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.';
      const wrong = responses.findIndex(
        (one, at) => one['name'] !== calls[at]!['name'] || one['id'] !== calls[at]!['id'],
      );
      return wrong === -1
        ? undefined
        : `the function response ${wrong} is not that of the call ${wrong} (contents[${index}])`;
    }) ??
    (callsIn(contents.at(-1)!).length > 0 ? 'Please ensure that function calls have function responses.' : undefined)
  );
}

function callsIn({ parts = [] }: Content): readonly Part[] {
  return parts.flatMap(({ functionCall }) => (functionCall === undefined ? [] : [functionCall as Part]));
}

/** Since Gemini 3, the first call of each step must have a signature. In earlier turns of the user, the API ignores it. */
function signatureProblem(
  { role, parts }: Content,
  index: number,
  contents: readonly Content[],
  { issued, model = '' }: RuleOptions,
): string | undefined {
  if (role !== 'model') return undefined;
  const lastQuestion = contents.findLastIndex(
    (content) => content.role === 'user' && !content.parts!.some((part) => 'functionResponse' in part),
  );
  const first = parts!.find((part) => 'functionCall' in part);
  if (/gemini-[3-9]/.test(model) && first && first['thoughtSignature'] === undefined && index > lastQuestion)
    return `Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call \`${String((first['functionCall'] as Part)['name'])}\` , position ${index + 1}.`;
  return firstProblem(parts!, (part) => corruptionProblem(part, issued));
}

function corruptionProblem(part: Part, issued: Issued | undefined): string | undefined {
  const signature = part['thoughtSignature'];
  if (signature === undefined || signature === SKIP || issued?.signatures === undefined) return undefined;
  return signedPart(part) in issued.signatures ? undefined : 'Corrupted thought signature.';
}

/** A signature with the part that it is in: it is valid only there. */
export function signedPart({ text, functionCall, thoughtSignature }: Part): string {
  const { id, name, args } = (functionCall ?? {}) as Part;
  return JSON.stringify([thoughtSignature, text, id, name, args]);
}

export { demo } from './demo/demo.ts';
export { openaiChat, type OpenAiChatOptions } from './openai-chat/openai-chat.ts';

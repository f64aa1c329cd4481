// A credential of type `aws_sigv4` as what signs each request: which of its requests can be signed, and with which hash of the body.
// It must never sign a body that it has not seen where the service would not know it.
import { createHash } from 'node:crypto';
import { Fault } from '../exchange/codes.ts';
import type { Resolution, Signer, Unsigned, UnsignedBody } from '../exchange/snapshot.ts';
import type { Credential } from './credential.ts';
import { EMPTY_PAYLOAD, payloadNeed, signSigV4, UNSIGNED_PAYLOAD, UNSIGNED_TRAILER } from './sigv4.ts';
import type { SigV4Keys } from './sigv4.ts';

type SigV4Credential = Extract<Credential, { type: 'aws_sigv4' }>;

/** What an `aws_sigv4` credential stands for. */
export function signingOf(credential: SigV4Credential): Extract<Resolution, { signer: unknown }> {
  const { secret_access_key, session_token } = credential;
  const secrets = session_token === undefined ? [secret_access_key] : [secret_access_key, session_token];
  return { signer: new SigV4Signer(credential), secrets };
}

class SigV4Signer implements Signer {
  readonly names: readonly string[];
  readonly #credential: SigV4Credential;

  constructor(credential: SigV4Credential) {
    this.#credential = credential;
    const token = credential.session_token === undefined ? [] : ['X-Amz-Security-Token'];
    this.names = ['X-Amz-Date', 'X-Amz-Content-Sha256', ...token, 'Authorization'];
  }

  need(request: Unsigned, hasBody: boolean): ReturnType<Signer['need']> {
    const need = payloadNeed(request, this.#credential.service, hasBody);
    if (need === 'signed_chunks') return { unfit: SIGNED_CHUNKS };
    return need === 'hash' ? 'body' : 'nothing';
  }

  sign(request: Unsigned, { bytes, streams }: UnsignedBody, now: number): ReturnType<Signer['sign']> {
    const need = payloadNeed(request, this.#credential.service, bytes !== undefined || streams);
    const payloadHash = hashFor(need, bytes);
    return signSigV4(request, this.#keys(), { now, payloadHash });
  }

  #keys(): SigV4Keys {
    const { access_key_id, secret_access_key, session_token, region, service } = this.#credential;
    return {
      accessKeyId: access_key_id,
      secretAccessKey: secret_access_key.reveal(),
      sessionToken: session_token?.reveal(),
      region,
      service,
    };
  }
}

const SIGNED_CHUNKS =
  'its body comes in chunks that bear signatures of their own (aws-chunked); have the client send it whole, or with an unsigned payload';

function hashFor(need: ReturnType<typeof payloadNeed>, body: Buffer | undefined): string {
  switch (need) {
    case 'empty':
      return EMPTY_PAYLOAD;
    case 'unsigned':
      return UNSIGNED_PAYLOAD;
    case 'unsigned_trailer':
      return UNSIGNED_TRAILER;
    case 'hash':
      if (body === undefined) break;
      return createHash('sha256').update(body).digest('hex');
    case 'signed_chunks':
      break;
  }
  throw new Fault('credential_unavailable', 'the request cannot be signed without its whole body');
}

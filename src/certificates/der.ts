// The few words of ASN.1 that certificates and trust stores are written in: node-forge lays them out as DER (X.690).
// It must never know what is written in them.
import forge from 'node-forge';

const { asn1 } = forge;
/** ASN.1's classes and universal types, by node-forge's numbers. */
export const { Class, Type } = asn1;
/** A value of ASN.1. */
export type Node = forge.asn1.Asn1;

/** Numbers of context tags; forge types a tag's number by the universal type that shares it. */
export const TAG = { 0: Type.NONE, 2: Type.INTEGER, 3: Type.BITSTRING, 7: Type.ODESC } as const;

/** A SEQUENCE of what is given. */
export function sequence(...items: Node[]): Node {
  return asn1.create(Class.UNIVERSAL, Type.SEQUENCE, true, items);
}

/** A value of a universal type, from its octets. */
export function primitive(type: forge.asn1.Type, octets: Buffer): Node {
  return asn1.create(Class.UNIVERSAL, type, false, octets.toString('latin1'));
}

/** An OBJECT IDENTIFIER, from its dotted form. */
export function oid(dotted: string): Node {
  return asn1.create(Class.UNIVERSAL, Type.OID, false, asn1.oidToDer(dotted).getBytes());
}

/** The octets of a value. */
export function der(node: Node): Buffer {
  return Buffer.from(asn1.toDer(node).getBytes(), 'latin1');
}

/** A value from its octets. Throws on what is no DER. */
export function parsed(octets: Buffer): Node {
  return asn1.fromDer(octets.toString('latin1'));
}

/** What stands in a constructed value. Throws where it is none. */
export function children(node: Node | undefined): Node[] {
  if (node === undefined || typeof node.value === 'string') throw new Error('not a certificate');
  return node.value;
}

/** The octets of a primitive value, as a binary string. Throws where it is none. */
export function text(node: Node): string {
  if (typeof node.value !== 'string') throw new Error('not a certificate');
  return node.value;
}

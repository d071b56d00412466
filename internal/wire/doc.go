// Package wire reads and writes the bytes of the Kafka protocol: primitive
// types, request and response headers, and whole messages by one walk that
// serves both directions.
//
// [Reader] and the Append functions are for code that goes one way. [Codec] is
// for messages described once: a function that visits the fields in order,
// encodes or decodes depending on the codec it is given, so the two can't
// differ.
//
// Input is hostile. No length is believed before it is compared with the bytes
// that are there, arrays grow with the elements actually read, and the first
// error sticks: afterwards every read returns zero values.
//
// Strings are copied out of the input; byte fields alias it, and the caller
// keeps the input alive and unchanged for as long as it keeps them.
package wire

package wire

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// fill gives every field of a message a value that isn't its default, so that
// all tagged fields are written, with n elements in each array.
func fill(m any, n int) { fillValue(reflect.ValueOf(m).Elem(), n) }

func fillValue(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fillValue(v.Field(i), n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillValue(v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fillValue(v.Index(i), n)
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7)
	}
}

func newRequest(key api.Key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(int16(key))
	req.SetVersion(version)
	return req
}

package metafollow

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"milena/internal/api"
)

// NotController reports whether a response says NOT_CONTROLLER, as a whole or for one of
// the things asked for.
func NotController(resp kmsg.Response) bool {
	v := reflect.ValueOf(resp)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	return saysNotController(v.Elem(), 2)
}

// saysNotController looks at a struct's ErrorCode, and depth levels below it at the first
// element of each list: a controller that isn't active refuses all alike.
func saysNotController(v reflect.Value, depth int) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	if f := v.FieldByName("ErrorCode"); f.IsValid() && f.Kind() == reflect.Int16 && f.Int() == int64(api.NotController) {
		return true
	}
	if depth == 0 {
		return false
	}
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() > 0 && f.Type().Elem().Kind() == reflect.Struct && saysNotController(f.Index(0), depth-1) {
			return true
		}
	}
	return false
}

package gateway

import "encoding/json"

// The functions here walk JSON that json.Valid has accepted, without building
// anything: a prompt of megabytes costs one pass and no memory. They must not
// be used on anything else.

// eachMember calls f with the members of a JSON object, in order.
func eachMember(object []byte, f func(name string, value []byte)) {
	i := skipSpace(object, 0) + 1 // past the brace
	for {
		if i = skipSpace(object, i); object[i] == '}' {
			return
		}
		if object[i] == ',' {
			i++
			continue
		}
		end := stringEnd(object, i)
		name := memberName(object[i:end])
		i = skipSpace(object, end)
		i = skipSpace(object, i+1) // past the colon
		end = valueEnd(object, i)
		f(name, object[i:end])
		i = end
	}
}

// memberName decodes a quoted name; escapes are rare, so copies are.
func memberName(quoted []byte) string {
	for _, b := range quoted {
		if b == '\\' {
			var name string
			_ = json.Unmarshal(quoted, &name)
			return name
		}
	}
	return string(quoted[1 : len(quoted)-1])
}

// valueEnd returns the index behind the value that starts at i. It counts
// brackets instead of recursing: a body may be nested as deep as json.Valid
// lets it.
func valueEnd(data []byte, i int) int {
	depth := 0
	for {
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
		default:
			i = scalarEnd(data, i)
		}
		if depth == 0 {
			return i
		}
	}
}

// stringEnd returns the index behind the string whose quote is at i.
func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// scalarEnd returns the index behind the number or word that starts at i.
func scalarEnd(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch data[i] {
		case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
	}
	return i
}

// skipSpace returns the index of the next byte that is not white space.
func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// nextByte is the next byte that is not white space, 0 at the end.
func nextByte(data []byte, i int) byte {
	if i = skipSpace(data, i); i < len(data) {
		return data[i]
	}
	return 0
}

func firstByte(data []byte) byte { return nextByte(data, 0) }

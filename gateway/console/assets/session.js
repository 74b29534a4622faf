// Who looks. The credential stays in sessionStorage: in this tab, until it is
// closed, and it is sent to this origin alone.
const key = "headway-credential";

export const credential = {
  get: () => sessionStorage.getItem(key) ?? "",
  set: (value) => sessionStorage.setItem(key, value),
  forget: () => sessionStorage.removeItem(key),
};

// headers are what every request carries.
export function headers(value = credential.get()) {
  return value ? { Authorization: `Bearer ${value}` } : {};
}

// call asks the API. It returns the response, whatever its status, with the
// document in it as body (null if it is none), and throws only if there is none.
export async function call(path, { method = "GET", body, extra = {}, as } = {}) {
  const init = { method, headers: { ...headers(as), ...extra }, cache: "no-store" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  const response = await fetch(path, init);
  const document = await response.json().catch(() => null);
  return { status: response.status, ok: response.ok, etag: response.headers.get("ETag"), body: document };
}

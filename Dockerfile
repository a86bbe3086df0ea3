# ReCAP on a CPU, without tests and research: docker build -t recap . && docker run --rm recap --version
FROM python:3.11-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 libegl1 libegl-mesa0 libosmesa6 \
 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt pyproject.toml hatch_build.py README.md LICENSE /build/
COPY src /build/src
COPY client /build/client
COPY apps /build/apps
COPY integrations /build/integrations
RUN pip install --no-cache-dir --constraint /build/constraints.txt torch --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir --constraint /build/constraints.txt /build/client '/build[all]' \
 && rm -rf /build
RUN useradd --create-home recap
USER recap
WORKDIR /home/recap
EXPOSE 8000
ENTRYPOINT ["recap"]
CMD ["--help"]
